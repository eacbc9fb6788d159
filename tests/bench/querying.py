"""Rows 44 and 45: queries in SQL, against DuckDB on a Parquet file with the same records, and
against kcat and jq, which ask a broker that serves them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

import kafkafs
from tests.bench import broker
from tests.bench.commands import KAFKAFS
from tests.bench.data import TOPIC, kept, made
from tests.bench.plan import Plan
from tests.bench.race import Command, Outcomes, need, python_task, race, versus

_PARTITIONS: Final = 8
_APPENDED: Final = 50_000
_AMOUNT: Final = "CAST(decode(value)->>'amount' AS DOUBLE)"
_QUERIES: Final = {
    "SQL, count(*) by partition": f"SELECT partition, count(*) FROM {TOPIC} GROUP BY 1",
    "SQL, sum over a field of JSON": f"SELECT sum({_AMOUNT}) FROM {TOPIC}",
}
#: The same, asked with jq of what kcat prints.
_PROGRAMS: Final = {
    "SQL, count(*) by partition": "reduce inputs as $r ({}; .[$r.partition | tostring] += 1)",
    "SQL, sum over a field of JSON": "reduce (inputs.payload | fromjson.amount) as $a (0; . + $a)",
}


def against_parquet(plan: Plan) -> Outcomes:
    """Both sessions are open. Ours reads the log anew for each query."""
    records = max(plan.records // _PARTITIONS, 1)
    log = _json_log(_PARTITIONS, records)
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


def against_kcat(plan: Plan) -> Outcomes:
    """From the start of the commands to their end, once: jq takes a minute for 8 million records.
    Of a much smaller log, what counts would be the start of Python, pyarrow and DuckDB."""
    need("kcat", "jq")
    log = _json_log(1, plan.records)
    with broker.serving(log) as kafka:
        for work, query in _QUERIES.items():
            place = f"-b {kafka.bootstrap} -t {TOPIC} -p 0 -o beginning"
            piped = f"kcat -C -J -q -e {place} | jq -n '{_PROGRAMS[work]}'"
            contenders = {
                "ours": Command([*KAFKAFS, "sql", str(log), query]),
                "kcat": Command(["bash", "-o", "pipefail", "-c", piped]),
            }
            seconds = race(contenders, 1)
            yield versus(
                45, f"kafkafs {work}, {plan.records / 1e6:g} M records",
                (seconds["ours"], seconds["kcat"]), "kcat -J | jq", 50,
                amount=plan.records / 1e6, unit="M rec/s",
            )  # fmt: skip


def _json_log(partitions: int, records: int) -> Path:
    """Returns a log directory with that many records of JSON in each partition."""
    return kept(f"json-{partitions}x-{records}", lambda to: _write(to, partitions, records))


def _write(directory: Path, partitions: int, records: int) -> None:
    with kafkafs.open(directory, writable=True) as d:
        d.create_topic(TOPIC, partitions)
        for partition in range(partitions):
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
