"""The files of an export: every record comes back from every format, whatever is in it; what other
programs read in them; and files that no export has written."""

from __future__ import annotations

import csv
import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.layout import TimestampType
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.transfer.csv_files import CSV_SCHEMA
from kafkafs.storage.operations.transfer.export import export
from kafkafs.storage.operations.transfer.import_ import Import, import_logs
from kafkafs.storage.operations.transfer.record_files import SCHEMA
from kafkafs.storage.operations.transfer.record_reading import read_file, read_ordered
from kafkafs.storage.operations.transfer.request import FORMATS, PERIODS, Export, Format, Period
from tests.building import BatchFields, build_batch
from tests.logs import write_log_dir, write_partition
from tests.profiles import percent
from tests.reading import read

DAY = 86_400_000
HOUR = DAY // 24
TIME = 1_700_000_000_000

#: Bytes that a format might take for something else.
HOSTILE = [
    *(b"", b"\0", b"\xff", b'{"base64":"AAAA"}', b'{"base64"', b'"', b'""', b",", b"\n", b"\r\n"),
    *(b"null", b"NULL", b"\xef\xbb\xbf", "ü\u2028".encode(), b'a,"b"\n', b' ,"offset":7,', b"\\N"),
    b',"timestampType":"CreateTime",',
]
texts = st.none() | st.sampled_from(HOSTILE) | st.binary(max_size=12)
names = st.sampled_from(["", "h", 'a"b', "ü", "\0"])
times = st.sampled_from([-1, 0, TIME, TIME + HOUR, TIME + DAY, TIME + 40 * DAY]) | st.integers(
    0, 1 << 42
)
records = st.builds(
    SimpleRecord, times, texts, texts, st.lists(st.tuples(names, texts), max_size=2)
)


def made(root: Path, batches: list[list[SimpleRecord]], topic: str = "t") -> Path:
    """Writes a log directory with one partition that has these batches, with gaps between them."""
    found, offset = [], 0
    for number, each in enumerate(batches):
        kind = (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)[number % 2]
        fields = BatchFields(
            base_offset=offset, timestamp_type=kind, max_timestamp=TIME + number * HOUR
        )
        if kind is TimestampType.CREATE_TIME:
            fields = BatchFields(base_offset=offset)
        found.append(build_batch(each, fields))
        offset += len(each) + number % 3
    write_partition(root / f"{topic}-0", found)
    write_log_dir(root, {(topic, 0): offset})
    return root


def exported(source: Path, output: Path, **request: Any) -> list[Any]:
    return list(export(Engine(str(source)), Export(str(output), **request)))


def files(output: Path) -> list[Path]:
    return sorted(path for path in output.glob("topic=*/**/part-*") if path.is_file())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=percent(60))
@given(
    batches=st.lists(st.lists(records, min_size=1, max_size=6), min_size=1, max_size=5),
    format=st.sampled_from(FORMATS),
    by=st.sampled_from(PERIODS),
)
def test_every_record_comes_back(
    tmp_path: Path, batches: list[list[SimpleRecord]], format: Format, by: Period
) -> None:
    shutil.rmtree(tmp_path)
    source = made(tmp_path / "a", batches)
    exported(source, tmp_path / "out", format=format, by=by)
    request = Import.of(str(tmp_path / "out"))
    with LogManager(str(tmp_path / "in")) as engine:
        list(import_logs(engine, request))
    expected = read(Engine(str(source)).log("t", 0).view())
    assert read(Engine(str(tmp_path / "in")).log("t", 0).view()) == expected


@pytest.mark.parametrize("format", FORMATS)
def test_every_value_is_as_it_was(tmp_path: Path, format: Format) -> None:
    """Without an import: what is in the files."""
    values = [SimpleRecord(TIME, value, value, [("h", value)]) for value in [None, *HOSTILE]]
    exported(made(tmp_path / "a", [values]), tmp_path / "out", format=format)
    (path,) = files(tmp_path / "out")
    (batch,) = read_file(DirFd(str(path.parent)).open(path.name))
    for name in ("key", "value"):
        assert batch.column(name).to_pylist() == [None, *HOSTILE]
    assert [h[0]["value"] for h in batch.column("headers").to_pylist()] == [None, *HOSTILE]
    assert batch.column("offset").to_pylist() == list(range(len(values)))


# -- what other programs read ----------------------------------------------------------------------


def long_log(root: Path, count: int = 300_000) -> Path:
    """Writes a log of many records, 1000 per batch, a millisecond apart."""
    batches = [
        build_batch(
            [SimpleRecord(TIME + at + n, b"k%09d" % (at + n), b"v" * 10) for n in range(1000)],
            BatchFields(base_offset=at),
        )
        for at in range(0, count, 1000)
    ]
    write_partition(root / "t-0", batches)
    write_log_dir(root, {("t", 0): count})
    return root


def test_row_groups_that_queries_skip(tmp_path: Path) -> None:
    """Statistics of each row group of offset and timestamp, which ascend; DuckDB reads only the
    group that has the row."""
    exported(long_log(tmp_path / "a"), tmp_path / "out")
    (path,) = files(tmp_path / "out")
    metadata = pq.ParquetFile(path).metadata
    assert [metadata.row_group(n).num_rows for n in range(3)] == [1 << 17, 1 << 17, 300_000 - 2**18]
    names = pq.ParquetFile(path).schema_arrow.names
    for name, first in (("offset", 0), ("timestamp", TIME)):
        column = names.index(name)
        for number in range(3):
            statistics = metadata.row_group(number).column(column).statistics
            rows = metadata.row_group(number).num_rows
            low = first + (number << 17)
            expected: tuple[Any, Any] = (low, low + rows - 1)
            found = (statistics.min_raw, statistics.max_raw)
            assert found == expected
    sorting = metadata.row_group(0).sorting_columns
    assert [names[each.column_index] for each in sorting] == ["partition", "offset"]
    assert metadata.row_group(0).column(names.index("offset")).has_offset_index
    with duckdb.connect() as connection:
        groups = connection.execute(
            "select count(distinct row_group_id) from parquet_metadata(?)", [str(path)]
        ).fetchone()
        assert groups == (3,)
        scanned = {
            where: groups_scanned(connection, path, where)
            for where in ('"offset" = 200000', f'"timestamp" >= epoch_ms({TIME + 299_999})', "true")
        }
    assert list(scanned.values()) == [1, 1, 3]


def groups_scanned(connection: duckdb.DuckDBPyConnection, path: Path, where: str) -> int:
    """Returns how many row groups of the file DuckDB has read to answer a query."""
    profile = path.with_name("profile.json")
    connection.execute("pragma enable_profiling='json'")
    connection.execute(f"pragma profiling_output='{profile}'")
    connection.execute(f"select count(value) from read_parquet('{path}') where {where}").fetchall()
    (scan,) = (
        node
        for node in operators({"children": json.loads(profile.read_text())["operator"]})
        if node.get("type") == "TABLE_SCAN"
    )
    found: int = scan["row_groups_scanned"]
    return found


def operators(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("children", ()):
        yield from operators(child)


@pytest.mark.parametrize("by", PERIODS)
def test_a_tree_that_duckdb_and_polars_read(tmp_path: Path, by: Period) -> None:
    times = [TIME + at * HOUR for at in range(30)]
    source = made(tmp_path / "a", [[SimpleRecord(time, b"k", b"v") for time in times]])
    exported(source, tmp_path / "out", by=by)
    pattern = f"{tmp_path}/out/**/*.parquet"
    found = duckdb.execute(
        f"select topic, count(*), count(distinct date) from read_parquet('{pattern}',"
        " hive_partitioning = true) group by topic"
    ).fetchall()
    assert found == [("t", 30, 3)]
    frame = polars.scan_parquet(f"{tmp_path}/out/topic=t/**/*.parquet", hive_partitioning=True)
    assert frame.select(polars.len()).collect().item() == 30
    assert len(files(tmp_path / "out")) == (30 if by == "hour" else 3)
    if by == "hour":
        at_ten = frame.filter(polars.col("hour") == 10).collect()
        assert at_ten["offset"].to_list() == [12]


def test_csv_as_its_convention_says(tmp_path: Path) -> None:
    values = [
        SimpleRecord(TIME, None, b"", [("h", b"1"), ("n", None)]),
        SimpleRecord(-1, b'a,"b"\n', b"\xff"),
        SimpleRecord(TIME, b'{"base64":', b"x\0"),
    ]
    exported(made(tmp_path / "a", [values]), tmp_path / "out", format="csv")
    with_time, without = (path.read_bytes().decode() for path in files(tmp_path / "out"))
    header = '"key","value","partition","offset","timestamp","timestampType","headers"\n'
    assert with_time == (
        f'{header},"",0,0,{TIME},"CreateTime",'
        '"[{""key"":""h"",""value"":""1""},{""key"":""n"",""value"":null}]"\n'
        f'"{{""base64"":""eyJiYXNlNjQiOg==""}}","{{""base64"":""eAA=""}}",0,2,{TIME},"CreateTime",\n'
    )
    assert without == f'{header}"a,""b""\n","{{""base64"":""/w==""}}",0,1,,"CreateTime",\n'
    rows = list(csv.DictReader(with_time.splitlines(keepends=True)))
    assert list(rows[0]) == CSV_SCHEMA.names


def test_a_line_of_csv_larger_than_a_block(tmp_path: Path) -> None:
    values = [b"x" * (9 << 20), b"y", b'"' * (5 << 20), b"z"]
    batches = [[SimpleRecord(TIME, None, value)] for value in values]
    exported(made(tmp_path / "a", batches), tmp_path / "out", format="csv")
    found: list[Any] = []
    for path in files(tmp_path / "out"):
        for batch in read_file(DirFd(str(path.parent)).open(path.name)):
            found += zip(
                batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True
            )
    assert [value for _, value in sorted(found)] == values


def test_files_are_read_in_the_order_of_offsets(tmp_path: Path) -> None:
    """Timestamps that jump between hours put neighbours into different files."""
    times = [TIME + (at * 7 % 5) * HOUR for at in range(500)]
    source = made(tmp_path / "a", [[SimpleRecord(time, None, b"v") for time in times]])
    exported(source, tmp_path / "out", by="hour")
    opened = [DirFd(str(path.parent)).open(path.name) for path in files(tmp_path / "out")]
    assert len(opened) == 5
    offsets = [
        offset for table in read_ordered(opened) for offset in table.column("offset").to_pylist()
    ]
    assert offsets == list(range(500))


# -- files that no export has written --------------------------------------------------------------

JSON = '{"key":null,"value":"v","topic":"t","partition":0,"offset":0,"timestamp":5,'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.parquet", b""),
        ("a.parquet", b"PAR1" * 10),
        ("a.arrow", b"ARROW1\0\0" + b"\xff" * 40),
        ("a.jsonl", b"{\n"),
        ("a.jsonl", b"[" * 100_000 + b"\n"),
        ("a.jsonl", b'{"key":1}\n'),
        ("a.jsonl", JSON.encode() + b'"timestampType":"Never","headers":[]}\n'),
        ("a.jsonl", JSON.encode() + b'"timestampType":"CreateTime","headers":[{"key":1}]}\n'),
        ("a.csv", b""),
        ("a.csv", b"key,value\n1,2\n"),
        ("a.csv", ",".join(CSV_SCHEMA.names).encode() + b"\na,b,0,0,0,Never,\n"),
        ("a.csv", ",".join(CSV_SCHEMA.names).encode() + b"\na,b,0,,0,CreateTime,\n"),
        ("a.csv", ",".join(CSV_SCHEMA.names).encode() + b"\na,b,0,0,0,CreateTime,{\n"),
        ("a.csv", ",".join(CSV_SCHEMA.names).encode() + b"\na,b,0,0,0,CreateTime,1\n"),
        ("a.csv", b"\xff\xfe\n"),
        (
            "a.csv",
            ",".join(CSV_SCHEMA.names).encode() + b'\n"{""base64"":7}",b,0,0,0,CreateTime,\n',
        ),
    ],
)
def test_what_is_no_file_of_an_export(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorruptError, match="not a file of an export") as refused:
        list(read_file(DirFd(str(tmp_path)).open(name)))
    assert refused.value.file == str(tmp_path / name)


def test_an_arrow_file_with_offsets_beyond_its_data(tmp_path: Path) -> None:
    """Whoever made it would see what else is in memory, or end the process."""
    row = {"value": b"v" * 1000, "partition": 0, "offset": 0, "headers": []}
    table = pa.Table.from_pylist([row] * 3, SCHEMA)
    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(path, SCHEMA) as writer:
        writer.write_table(table)
    offsets, wrong = (struct.pack("<4i", 0, end, 2000, 3000) for end in (1000, 1 << 30))
    data = path.read_bytes()
    assert data.count(offsets) == 1
    path.write_bytes(data.replace(offsets, wrong))
    with pytest.raises(CorruptError, match="not a file of an export"):
        list(read_file(DirFd(str(tmp_path)).open(path.name)))


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_columns_of_another_type(tmp_path: Path, format: str) -> None:
    table = pa.table({name: pa.array([1]) for name in CSV_SCHEMA.names})
    path = tmp_path / f"a.{format}"
    if format == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(CorruptError, match="not a file of an export"):
        list(read_file(DirFd(str(tmp_path)).open(path.name)))
