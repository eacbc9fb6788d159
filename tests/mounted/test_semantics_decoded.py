"""The promises of SEMANTICS.md about decoded keys and values."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkafs
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests import answers
from tests.building import BatchFields, build_batch
from tests.mounted.conftest import Mounting
from tests.mounted.mounting import errno_of
from tests.mounted.promises import promise
from tests.registry_records import schema
from tests.waiting import wait_until

DECODED = ("avro", "protobuf", "json")
EMPTY = '{"type":"record","name":"Empty","fields":[]}'
LATE = '{"type":"record","name":"Late","fields":[{"name":"s","type":"string"}]}'


def rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line, parse_constant=pytest.fail) for line in lines]


def expected() -> Mapping[str, list[dict[str, Any]]]:
    """Returns what Confluent's deserializers made of the corpus, by partition."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows(answers.directory("schemas43") / "decoded.jsonl"):
        found.setdefault(f"{row['topic']}/{row['partition']}", []).append(row)
    return found


@pytest.fixture
def data(tmp_path: Path, corpus: Callable[[str], Path]) -> Path:
    return Path(shutil.copytree(corpus("schemas43"), tmp_path / "data"))


def append(data: Path, partition: str, *records: SimpleRecord) -> None:
    topic, _, number = partition.rpartition("-")
    with kafkafs.open(data) as d:
        end = d[topic, int(number)].end_offset
    log = max((data / partition).glob("*.log"))
    with log.open("ab") as output:
        output.write(build_batch(records, BatchFields(base_offset=end)))


@promise(
    "`decoded.jsonl` contains the lines of `records.jsonl`, in which `key` and `value` are decoded"
    " with the schemas that they name; a key or value that names none is as it is there."
)
@promise(
    "After `headers`, such a line has `keySchemaId` and `valueSchemaId`, and `error` if a key or"
    " value is not there decoded, or only in part, with the reason; no record is left out."
)
def test_decoded_lines(data: Path, mount: Mounting) -> None:
    point = mount(data).point
    errors = 0
    for partition, wanted in expected().items():
        found = rows(point / partition / "decoded.jsonl")
        plain = rows(point / partition / "records.jsonl")
        assert len(found) == len(plain) == len(wanted)
        for row, raw, want in zip(found, plain, wanted, strict=True):
            assert list(row)[:8] == list(raw)
            for name in ("key", "value"):
                is_decoded = want[name]["kind"] in DECODED
                assert row[name] == (want[name]["value"] if is_decoded else raw[name])
                assert row.get(f"{name}SchemaId") == want[name].get("schema_id")
            assert {name: row[name] for name in list(raw)[2:]} == {
                name: raw[name] for name in list(raw)[2:]
            }
            if "error" in want["value"]:
                errors += 1
                assert row["error"].startswith("value: ")
    assert errors == 37


@promise(
    "`offset/N.decoded.json` is the record's line, with the fields of its batch and what is known"
    " of both schemas."
)
def test_a_record(data: Path, mount: Mounting) -> None:
    point = mount(data).point
    for partition in ("s-keyed/0", "s-proto/1", "s-mixed/0"):
        lines = rows(point / partition / "decoded.jsonl")
        wanted = expected()[partition]
        for row, want in zip(lines, wanted, strict=True):
            offsets = point / partition / "offset"
            [found] = rows(offsets / f"{row['offset']}.decoded.json")
            [plain] = rows(offsets / f"{row['offset']}.json")
            assert found | row == found
            assert found == found | {name: plain[name] for name in list(plain)[8:]}
            for name in ("key", "value"):
                about = found[f"{name}Schema"]
                assert about["kind"] == want[name]["kind"]
                assert about.get("message", "") == want[name].get("message", "")
            if "subject" in want["value"]:
                named = found["valueSchema"]["subject"], found["valueSchema"]["version"]
                assert named == (want["value"]["subject"], want["value"]["version"])


@promise(
    "`follow.decoded.jsonl` is `decoded.jsonl` without an end, as in section 7; each record is"
    " decoded with the schemas that are registered when it is read."
)
def test_following(data: Path, mount: Mounting) -> None:
    partition = mount(data).point / "s-mixed" / "0"
    assert "follow.decoded.jsonl" not in os.listdir(partition)
    with (partition / "follow.decoded.jsonl").open("rb", buffering=0) as follow:
        before = (partition / "decoded.jsonl").read_bytes()
        found = b""
        while len(found) < len(before):
            found += follow.read(1 << 20)
        assert found == before
        append(data, "_schemas-0", schema("s-mixed-value", 2, 99, LATE))
        append(data, "s-mixed-0", SimpleRecord(1000, None, b"\0\0\0\0\x63\x04hi"))
        line = b""
        while not line:
            line = follow.read(1 << 20)
        row = json.loads(line)
        assert (row["value"], row["valueSchemaId"]) == ({"s": "hi"}, 99)


@promise(
    "`compacted/decoded.jsonl` and `range/A-B/decoded.jsonl` contain the lines of the records that"
    " the files beside them contain."
)
def test_compacted_and_ranges(data: Path, mount: Mounting) -> None:
    point = mount(data).point
    for partition in ("s-keyed/0", "s-avro/1", "s-mixed/0"):
        lines = {row["offset"]: row for row in rows(point / partition / "decoded.jsonl")}
        for where in ("compacted", "range/3-7"):
            directory = point / partition / where
            offsets = [row["offset"] for row in rows(directory / "records.jsonl")]
            assert rows(directory / "decoded.jsonl") == [lines[offset] for offset in offsets]


@promise(
    "If the topic's values or keys have a schema, `range/A-B` also contains `decoded.arrow` and"
    " `decoded.parquet`: the columns of `records.arrow`, then `decoded` and `decodeError` of"
    " values, and `decodedKey` and `decodeKeyError` of keys."
)
def test_typed_columns(data: Path, mount: Mounting) -> None:
    point = mount(data).point
    with kafkafs.open(data) as d:
        for partition in d:
            if not partition.end_offset or partition.topic.startswith("__"):
                continue
            range_ = f"{partition.start_offset}-{partition.end_offset - 1}"
            directory = point / partition.topic / str(partition.partition) / "range" / range_
            names = {"decoded.arrow", "decoded.parquet"}
            if partition.topic in ("_schemas", "s-hard"):
                assert not names & set(os.listdir(directory))
                assert errno_of(os.stat, directory / "decoded.arrow") == errno.ENOENT
                continue
            assert names <= set(os.listdir(directory))
            expected = partition.scan(decode=True).read_all()
            with pa.ipc.open_stream((directory / "decoded.arrow").read_bytes()) as stream:
                streamed = stream.read_all()
            for found in (streamed, pq.read_table(directory / "decoded.parquet")):
                assert found.schema == expected.schema
                assert repr(found.to_pylist()) == repr(expected.to_pylist())  # with NaN
            for name in names:
                assert (directory / name).stat().st_size == len((directory / name).read_bytes())
    assert point.joinpath("s-keyed/0/range/0-3/decoded.arrow").stat().st_size > 0


@promise(
    "These columns have the type of the newest schema, the same for all records. If a schema cannot"
    " be used, the files are listed, and EIO; `decoded.parquet` alone is EIO if Parquet has no such"
    " columns."
)
def test_types_of_the_newest_schema(data: Path, mount: Mounting) -> None:
    point = mount(data).point
    directory = point / "s-avro/0/range/2-3"
    with pa.ipc.open_stream((directory / "decoded.arrow").read_bytes()) as stream:
        before = stream.read_all()
    append(data, "_schemas-0", schema("s-avro-value", 9, 90, LATE))
    wait_until(lambda: _fields(directory / "decoded.arrow") == ["s"])
    assert pq.read_table(directory / "decoded.parquet")["decoded"].to_pylist() == [None, None]
    assert "s" not in [field.name for field in before.schema.field("decoded").type]
    append(data, "_schemas-0", schema("s-avro-value", 10, 91, EMPTY))
    wait_until(lambda: _fields(directory / "decoded.arrow") == [])
    wait_until(lambda: errno_of(os.stat, directory / "decoded.parquet") == errno.EIO)
    append(data, "_schemas-0", schema("s-avro-value", 11, 92, "{"))
    wait_until(lambda: errno_of(os.stat, directory / "decoded.arrow") == errno.EIO)
    assert {"decoded.arrow", "decoded.parquet"} <= set(os.listdir(directory))


def _fields(path: Path) -> list[str]:
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        return [field.name for field in stream.schema.field("decoded").type]


@promise(
    "When the registry has changed, the names lead to files that are decoded with the schemas of"
    " then; a file that is open stays as it is."
)
def test_a_change_of_the_registry(data: Path, mount: Mounting) -> None:
    append(data, "s-mixed-0", SimpleRecord(1000, None, b"\0\0\0\0\x63\x04hi"))
    partition = mount(data).point / "s-mixed" / "0"
    paths = [
        *(partition / name for name in ("decoded.jsonl", "compacted/decoded.jsonl")),
        partition / "range/50-60/decoded.jsonl",
    ]
    before = [path.read_bytes() for path in paths]
    sizes = [path.stat().st_size for path in paths]
    with paths[0].open("rb") as held:
        append(data, "_schemas-0", schema("s-mixed-value", 2, 99, LATE))
        for path, old in zip(paths, before, strict=True):
            assert json.loads(old.splitlines()[-1])["error"] == "value: no schema with this id"
            wait_until(partial(_differs, path, old))
            row = json.loads(path.read_bytes().splitlines()[-1])
            assert row["value"] == {"s": "hi"}
            assert path.stat().st_size == len(path.read_bytes())
        assert held.read() == before[0]
        assert os.fstat(held.fileno()).st_size == sizes[0] == len(before[0])
    [row] = rows(partition / "offset" / "60.decoded.json")
    assert row["value"] == {"s": "hi"}


def _differs(path: Path, before: bytes) -> bool:
    return path.read_bytes() != before


@promise("Sizes and damage of these files are as of the `records.jsonl` beside them.")
def test_sizes_and_damage(data: Path, mount: Mounting) -> None:
    log = max((data / "s-mixed-0").glob("*.log"))
    torn = bytearray(log.read_bytes())
    torn[200] ^= 1  # in the second batch
    log.write_bytes(torn)
    started = mount(data)
    started.expects_warnings = True
    for path in sorted(started.point.glob("s-*/*")):
        if not path.is_dir():
            continue
        is_damaged = path.parent.name == "s-mixed"
        for name in ("records.jsonl", "decoded.jsonl"):
            assert (errno_of((path / name).read_bytes) == errno.EIO) == is_damaged
        if not is_damaged:
            decoded = path / "decoded.jsonl"
            assert decoded.stat().st_size == len(decoded.read_bytes())
    partition = started.point / "s-mixed" / "0"
    whole = [row["offset"] for row in rows_before_damage(partition / "records.jsonl")]
    assert [row["offset"] for row in rows_before_damage(partition / "decoded.jsonl")] == whole
    assert whole


def rows_before_damage(path: Path) -> list[dict[str, Any]]:
    """Returns the lines that can be read."""
    data = b""
    with path.open("rb", buffering=0) as file:
        while True:
            try:
                part = file.read(1 << 16)
            except OSError:
                return [json.loads(line) for line in data.splitlines()]
            data += part
