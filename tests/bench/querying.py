"""Row 44: queries in SQL, against DuckDB on a Parquet file with the same records."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

import kafkafs
from tests.bench.data import TOPIC, kept, made
from tests.bench.plan import Plan
from tests.bench.race import Outcomes, python_task, race, versus

_PARTITIONS: Final = 8
_APPENDED: Final = 50_000
_AMOUNT: Final = "CAST(decode(value)->>'amount' AS DOUBLE)"
_QUERIES: Final = {
    "SQL, count(*) by partition": f"SELECT partition, count(*) FROM {TOPIC} GROUP BY 1",
    "SQL, sum over a field of JSON": f"SELECT sum({_AMOUNT}) FROM {TOPIC}",
}


def against_parquet(plan: Plan) -> Outcomes:
    """Both sessions are open. Ours reads the log anew for each query."""
    records = max(plan.records // _PARTITIONS, 1)
    log = kept(f"json-{_PARTITIONS}x-{records}", lambda directory: _write(directory, records))
    file = made(f"parquet-{_PARTITIONS}x-{records}", lambda to: _copy(log, to)) / "records.parquet"
    for work, query in _QUERIES.items():
        contenders = {
            "ours": python_task("sql", str(log), query),
            "duckdb": python_task("duckdb", str(file), query),
        }
        seconds = race(contenders, plan.repetitions)
        yield versus(
            44, work, (seconds["ours"], seconds["duckdb"]), "DuckDB on Parquet", 0.5,
            amount=_PARTITIONS * records / 1e6, unit="M rec/s",
        )  # fmt: skip


def _write(directory: Path, records: int) -> None:
    with kafkafs.open(directory, writable=True) as d:
        d.create_topic(TOPIC, _PARTITIONS)
        for partition in range(_PARTITIONS):
            for first in range(0, records, _APPENDED):
                numbers = range(first, min(first + _APPENDED, records))
                d[TOPIC, partition].append([_value(number) for number in numbers])


def _value(number: int) -> bytes:
    start = f'{{"order":{number},"customer":"c{number % 5003:05d}","amount":{number % 99991 / 100}'
    return f'{start},"note":"{"amber basil cedar delta ember"}"}}'.encode()


def _copy(log: Path, directory: Path) -> None:
    """Writes all columns of all records, with pyarrow's usual settings."""
    with kafkafs.open(log) as d:
        first, *others = (d[TOPIC, number].scan() for number in d.topics[TOPIC])
        with pq.ParquetWriter(directory / "records.parquet", first.schema) as writer:
            for reader in (first, *others):
                writer.write_table(reader.read_all(), row_group_size=122_880)
