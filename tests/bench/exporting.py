"""Row 42: records as Parquet files, against pyarrow's own writer of the same columns."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.arrow import to_record_batch
from kafkafs.storage.format.records.columns import Damage
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.transfer.export import export
from kafkafs.storage.operations.transfer.record_files import SCHEMA
from kafkafs.storage.operations.transfer.request import Export, PartitionExport
from tests.bench.data import TOPIC, plain_log
from tests.bench.plan import Plan
from tests.bench.race import Call, Outcomes, race, versus

_GROUP_ROWS = 1 << 17


def parquet(plan: Plan) -> Outcomes:
    """Our time includes reading and decoding the log, and what makes the files durable. pyarrow has
    the table in memory, and writes it with the same codec in row groups of the same size: with one
    thread, as `write_table` does, and with a thread for each of two files."""
    for codec in (Codec.NONE, Codec.LZ4):
        yield from _parquet(plan, codec)


def _parquet(plan: Plan, codec: Codec) -> Outcomes:
    log = plain_log(plan.records, codec)
    table = _table(log)
    with tempfile.TemporaryDirectory(prefix="kafkafs-bench-export-") as directory:
        seconds = race(
            {
                "kafkafs": Call(lambda: _ours(log, Path(directory), plan.records)),
                "one": Call(lambda: _timed(lambda: _write([table], Path(directory)))),
                "two": Call(lambda: _timed(lambda: _write(_halves(table), Path(directory)))),
            },
            plan.repetitions,
        )
    work = f"export to Parquet, {codec.kafka_name}"
    amount, unit = plan.records / 1e6, "M rec/s"
    for peer, name, target in (
        ("one", "pyarrow's write_table", 0.7),
        ("two", "pyarrow's write_table, two threads", None),
    ):
        pair = seconds["kafkafs"], seconds[peer]
        yield versus(42, work, pair, name, target, amount=amount, unit=unit)


def _table(log: Path) -> pa.Table:
    view = Engine(str(log)).log(TOPIC, 0).view()
    columns = (each for each in view.scan() if not isinstance(each, Damage))
    parts = (to_record_batch(each, TOPIC, 0, SCHEMA.names) for each in columns)
    return pa.Table.from_batches(parts, SCHEMA).combine_chunks()


def _ours(log: Path, directory: Path, records: int) -> float:
    """Exports to a new directory."""
    output = tempfile.mkdtemp(dir=directory)
    start = time.perf_counter()
    rows = list(export(Engine(str(log)), Export(output)))
    taken = time.perf_counter() - start
    assert sum(row.records for row in rows if isinstance(row, PartitionExport)) == records
    return taken


def _timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _halves(table: pa.Table) -> list[pa.Table]:
    middle = len(table) // 2
    return [table.slice(0, middle), table.slice(middle)]


def _write(tables: list[pa.Table], directory: Path) -> None:
    def one(number: int) -> None:
        path = directory / f"{number}.parquet"
        pq.write_table(tables[number], path, compression="zstd", row_group_size=_GROUP_ROWS)

    with ThreadPoolExecutor(len(tables)) as executor:
        list(executor.map(one, range(len(tables))))
