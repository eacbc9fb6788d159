"""Exports that are begun, continued and imported: which records they have, what they refuse, and
what happens when the logs change meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkafs.storage.errors import (
    CorruptError,
    InvalidRecord,
    InvalidTimestamp,
    LogDirError,
    MessageTooLarge,
    OtherJob,
    Refused,
    UnknownTopic,
)
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.request import ProgressListener
from kafkafs.storage.operations.transfer import export_plan
from kafkafs.storage.operations.transfer.export import export
from kafkafs.storage.operations.transfer.import_ import Import, import_logs
from kafkafs.storage.operations.transfer.parquet_import import ImportParquet, import_parquet
from kafkafs.storage.operations.transfer.record_reading import read_file
from kafkafs.storage.operations.transfer.request import (
    FORMATS,
    Export,
    Format,
    NotExported,
    PartitionExport,
    TransferSummary,
)
from tests import answers
from tests.conftest import differences, fingerprint
from tests.crash.exporting import contents, exported
from tests.readme import ROOT

Corpus = Callable[[str], Path]

TIME = 1_700_000_000_000
HOUR = 3_600_000
TIMES = pa.timestamp("ms", "UTC")


def append(engine: LogManager, topic: str, values: range, partition: int = 0) -> None:
    """Appends records an hour apart, one to a batch."""
    for value in values:
        record = SimpleRecord(TIME + value * HOUR, b"k", b"%d" % value)
        engine.writer(topic, partition).append_records(RecordColumns.from_records([record]))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A log directory with the topic `t` of two partitions, with ten records in the first."""
    path = tmp_path / "source"
    with LogManager(str(path)) as engine:
        engine.create_topic("t", 2, {"internal.segment.bytes": "400"})
        append(engine, "t", range(10))
    return path


def run(source: Path, output: Path, **request: Any) -> list[Any]:
    return list(export(Engine(str(source)), Export(str(output), **request)))


def imported(output: Path, target: Path, *topics: str) -> list[Any]:
    request = Import.of(str(output), Selection.of(*topics) if topics else Selection())
    with LogManager(str(target)) as engine:
        return list(import_logs(engine, request))


def summary(rows: list[Any]) -> tuple[int, int]:
    (found,) = (row for row in rows if isinstance(row, TransferSummary))
    return found.units, found.skipped


def missing(rows: list[Any]) -> list[str]:
    return [row.what for row in rows if isinstance(row, NotExported)]


def offsets(output: Path, topic: str = "t", partition: int = 0) -> list[int]:
    return exported(output).get((topic, partition), [])


# -- which records ---------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", list(Isolation))
def test_every_record_of_a_broker(corpus: Corpus, tmp_path: Path, isolation: Isolation) -> None:
    rows = run(corpus("kafka43-clean"), tmp_path / "out", isolation=isolation)
    assert missing(rows) == []
    found = exported(tmp_path / "out")
    for topic, partition in answers.partitions_with_records("kafka43-clean"):
        records = answers.records("kafka43-clean", topic, partition, isolation.value)
        expected = [] if topic.startswith("__") else [each.offset for each in records]
        assert found.pop((topic, partition), []) == expected
    assert found == {}


def test_records_between_two_times(corpus: Corpus, tmp_path: Path) -> None:
    """As `time/T` finds them, in topics whose timestamps ascend and in others."""
    source = corpus("kafka43-clean")
    engine = Engine(str(source))
    topics = [topic for topic in engine.topics() if not topic.startswith("__")]
    moments = []
    for topic in topics:
        for number in engine.topics()[topic]:
            view = engine.log(topic, number).view()
            moments += [record.timestamp for record in list(_some(view))]
    since, until = sorted(moments)[len(moments) // 3], sorted(moments)[2 * len(moments) // 3]
    rows = run(source, tmp_path / "out", since_ms=since, until_ms=until)
    found = exported(tmp_path / "out")
    for topic in topics:
        for number in engine.topics()[topic]:
            view = engine.log(topic, number).view()
            first, last = (
                view.offset_for_time(time, Isolation.READ_COMMITTED) for time in (since, until)
            )
            end = view.stable_offset if last is None else last
            start = end if first is None else first
            expected = [record.offset for record in _all(view) if start <= record.offset < end]
            assert found.get((topic, number), []) == expected
    assert sum(map(len, found.values())) == sum(
        row.records for row in rows if isinstance(row, PartitionExport)
    )
    assert any(found.values())


def _all(view: Any) -> list[Any]:
    return [part.record(row) for part in view.scan() for row in range(len(part))]


def _some(view: Any) -> list[Any]:
    return [record for record in _all(view)[::500] if record.timestamp >= 0]


def test_a_time_that_no_record_has_reached_yet(source: Path, tmp_path: Path) -> None:
    """What is appended later belongs to the export if it is before the end, and only then."""
    wanted: dict[str, Any] = {"since_ms": TIME + 12 * HOUR, "until_ms": TIME + 15 * HOUR}
    run(source, tmp_path / "out", **wanted)
    assert offsets(tmp_path / "out") == []
    for end in (14, 20):
        with LogManager(str(source)) as engine:
            there = engine.writer("t", 0).end_offset
            append(engine, "t", range(there, end))
        run(source, tmp_path / "out", **wanted)
        assert offsets(tmp_path / "out") == list(range(12, min(end, 15)))
    imported(tmp_path / "out", tmp_path / "in")
    view = Engine(str(tmp_path / "in")).log("t", 0).view()
    assert (view.start_offset, view.end_offset) == (12, 15)


def test_an_end_before_the_beginning(source: Path, tmp_path: Path) -> None:
    request = Export(str(tmp_path / "out"), since_ms=5, until_ms=5)
    with pytest.raises(ValueError, match="would end before it begins"):
        request.check(Engine(str(source)))


# -- continuing ------------------------------------------------------------------------------------


def test_it_resumes_as_planned_and_adds_what_is_new(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_plan, "_LEAST_BYTES", 300)
    output = tmp_path / "out"
    units, skipped = summary(run(source, output))
    assert (units, skipped) == (2, 0)
    assert summary(run(source, output)) == (units, units)
    notes = sorted((output / "_kafkafs").glob("unit-*"))
    files = json.loads(notes[0].read_text())["files"]
    notes[0].unlink()
    (output / files[0]["path"]).write_text("torn")
    (output / "_SUCCESS").unlink()
    leftover = (output / files[0]["path"]).with_name(".part-00000-x.parquet.y.tmp")
    leftover.write_text("half")
    stale = (output / files[0]["path"]).parent.with_name("date=1999-01-01")
    stale.mkdir()
    (stale / Path(files[0]["path"]).name).write_text("of a period that the range no longer has")
    with LogManager(str(source)) as engine:
        append(engine, "t", range(10, 15))
        append(engine, "t", range(3), partition=1)
    again = run(source, output)
    assert summary(again)[1] == units - 1
    assert offsets(output) == list(range(15))
    assert offsets(output, partition=1) == list(range(3))
    assert not leftover.exists()
    assert list(stale.iterdir()) == []
    assert (output / "_SUCCESS").exists()


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({"format": "csv"}, "format"),
        ({"by": "hour"}, "by"),
        ({"isolation": Isolation.READ_UNCOMMITTED}, "isolation"),
        ({"since_ms": 1}, "from"),
        ({"until_ms": 1}, "until"),
        ({"selection": Selection.of("t")}, "topics"),
    ],
)
def test_another_export_is_refused(
    source: Path, tmp_path: Path, other: dict[str, Any], name: str
) -> None:
    run(source, tmp_path / "out")
    before = fingerprint(tmp_path / "out")
    with pytest.raises(OtherJob, match=f"different {name}; remove it"):
        run(source, tmp_path / "out", **other)
    # A lock was taken and released.
    assert differences(before, fingerprint(tmp_path / "out")) == ["_kafkafs"]


def test_damage_keeps_nothing_else_back(corpus: Corpus, tmp_path: Path) -> None:
    """A range with damage is missing, also when the rest grows; permissive, the same export has all
    that can be read."""
    source, output = corpus("kafka43-torn"), tmp_path / "out"
    strict = run(source, output)
    assert missing(strict)
    assert all("are not exported" in text for text in missing(strict))
    assert not (output / "_SUCCESS").exists()
    assert offsets(output, "crash-txn") == []
    permissive = run(source, output, permissive=True)
    assert summary(permissive)[1] == summary(strict)[0] - len(missing(strict))
    assert len(offsets(output, "crash-txn")) > 1000
    assert (output / "_SUCCESS").exists()
    assert len(missing(permissive)) >= len(missing(strict))


def test_a_topic_that_was_recreated(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    run(source, output)
    with LogManager(str(source)) as engine:
        engine.delete_topic("t")
        engine.create_topic("t", 1)
        append(engine, "t", range(100, 120))
        engine.create_topic("u", 1)
        append(engine, "u", range(2))
    rows = run(source, output)
    assert [text for text in missing(rows) if "deleted and created again" in text]
    assert offsets(output) == list(range(10))
    assert offsets(output, "u") == [0, 1]


def test_records_that_retention_has_taken_meanwhile(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted export says so, and permissive it has what is left."""
    monkeypatch.setattr(export_plan, "_LEAST_BYTES", 300)
    output = tmp_path / "out"
    run(source, output)
    for note in (output / "_kafkafs").glob("unit-*"):
        note.unlink()
    with LogManager(str(source)) as engine:
        engine.writer("t", 0).delete_records(5)
    rows = run(source, output)
    assert any("the log starts at 5 now" in text for text in missing(rows))
    run(source, output, permissive=True)
    assert offsets(output) == [5, 6, 7, 8, 9]


def test_a_log_that_grows_and_shrinks_all_the_time(source: Path, tmp_path: Path) -> None:
    """Repeated exports beside a writer, permissive because of retention, have every record that was
    there all the time, and none twice."""
    count, stop = 2000, threading.Event()

    def write() -> None:
        with LogManager(str(source)) as engine:
            for value in range(10, count):
                append(engine, "t", range(value, value + 1))
                if value == count // 2:
                    engine.writer("t", 0).delete_records(value // 2)
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not stop.is_set():
            run(source, tmp_path / "out", permissive=True)
    finally:
        writer.join()
    run(source, tmp_path / "out", permissive=True)
    found = offsets(tmp_path / "out")
    assert len(set(found)) == len(found)
    assert set(range(count // 4, count)) <= set(found)


# -- where -----------------------------------------------------------------------------------------


def test_files_of_somebody_else_are_left_alone(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    (output / "topic=t").mkdir(parents=True)
    (output / "topic=t" / "mine.parquet").write_text("mine")
    with pytest.raises(LogDirError, match="has files, but no export; choose a new or an empty"):
        run(source, output)
    assert [path.name for path in output.rglob("*")] == ["topic=t", "mine.parquet"]


def test_no_file_of_somebody_else_is_replaced_or_removed(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    run(source, output)
    (folder,) = (output / "topic=t").glob("date=2023-11-14")
    mine = [folder / "part-00000-1.parquet", folder / ".mine.tmp", folder / "part-00007-x.tmp"]
    for path in mine:
        path.write_text("mine")
    with LogManager(str(source)) as engine:
        append(engine, "t", range(10, 12))
    run(source, output)
    assert [path.read_text() for path in mine] == ["mine"] * 3


@pytest.mark.parametrize("place", ["topic=t", "topic=t/date=2023-11-14"])
def test_links_are_not_followed(source: Path, tmp_path: Path, place: str) -> None:
    """A unit that would write through one is missing; nothing is written outside."""
    output, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    with LogManager(str(tmp_path / "empty")) as engine:
        engine.create_topic("t", 1)
    run(source, output, until_ms=1)
    link = output / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside)
    job = output / "_kafkafs/job.json"
    known = json.loads(job.read_text())
    del known["until"]
    job.write_text(json.dumps(known))
    rows = run(source, output)
    assert missing(rows)
    assert "symbolic link" in missing(rows)[0]
    assert list(outside.iterdir()) == []


def test_not_in_a_log_directory(source: Path, tmp_path: Path) -> None:
    before = fingerprint(source)
    (tmp_path / "link").symlink_to(source)
    for place in (source / "out", tmp_path / "link" / "out", source):
        with pytest.raises(LogDirError, match="which no broker opens then"):
            run(source, place)
    assert differences(before, fingerprint(source)) == []


def test_the_longest_name_of_a_topic(tmp_path: Path) -> None:
    for name in ("x" * 249, "..a", "__HIVE_DEFAULT_PARTITION__", "007", "-"):
        source, output = tmp_path / "source", tmp_path / "out"
        with LogManager(str(source)) as engine:
            engine.create_topic(name, 1)
            append(engine, name, range(3))
        run(source, output, selection=Selection.of(name))
        assert offsets(output, name) == [0, 1, 2]
        imported(output, tmp_path / "in")
        assert contents(tmp_path / "in") == contents(source)
        for path in (source, output, tmp_path / "in"):
            shutil.rmtree(path)


def test_two_exports_at_once(source: Path, tmp_path: Path) -> None:
    """The second one is refused, and names the process of the first."""
    output = tmp_path / "out"
    script = (
        "import sys; from kafkafs.storage import *\n"
        "with begun_export(Engine(sys.argv[1]), Export(sys.argv[2])):\n"
        "    print('begun', flush=True); sys.stdin.read()\n"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", script, str(source), str(output)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "begun\n"
        with pytest.raises(OtherJob, match=f"process {first.pid} is exporting to it; wait"):
            run(source, output)
    finally:
        first.kill()
        first.communicate()
    run(source, output)
    assert offsets(output) == list(range(10))


def test_an_export_that_is_interrupted(source: Path, tmp_path: Path) -> None:
    class Stop(ProgressListener):
        def report(self, what: str, done: int, total: int) -> None:
            raise KeyboardInterrupt

    request = Export(str(tmp_path / "out"))
    with pytest.raises(KeyboardInterrupt):
        list(export(Engine(str(source)), request, Stop()))
    assert exported(tmp_path / "out") == {}
    assert list((tmp_path / "out").rglob("*.tmp")) == []
    run(source, tmp_path / "out")
    assert offsets(tmp_path / "out") == list(range(10))


# -- importing -------------------------------------------------------------------------------------


def test_what_an_export_has_more_is_appended(source: Path, tmp_path: Path) -> None:
    output, target = tmp_path / "out", tmp_path / "in"
    run(source, output)
    assert summary(imported(output, target)) == (1, 0)
    for end in (13, 17):
        with LogManager(str(source)) as engine:
            there = engine.writer("t", 0).end_offset
            append(engine, "t", range(there, end))
            append(engine, "t", range(2), partition=1)
        run(source, output)
        rows = imported(output, target)
        assert summary(rows)[1] == summary(rows)[0] - 2
        assert contents(target) == contents(source)
    rows = imported(output, target)
    assert summary(rows)[0] == summary(rows)[1] == 5
    assert contents(target) == contents(source)


def test_nothing_is_appended_after_records_of_others(source: Path, tmp_path: Path) -> None:
    output, target = tmp_path / "out", tmp_path / "in"
    run(source, output)
    imported(output, target)
    with LogManager(str(target)) as engine:
        append(engine, "t", range(1))
    with LogManager(str(source)) as engine:
        append(engine, "t", range(10, 12))
    run(source, output)
    refused = "t-0 has offsets up to 10; the import begins at 10"
    before = fingerprint(target)
    with pytest.raises(Refused, match=refused):
        Import.of(str(output)).check(Engine(str(target)))
    assert differences(before, fingerprint(target)) == []
    there = contents(target)
    with pytest.raises(Refused, match=refused):
        imported(output, target)
    assert contents(target) == there


def test_what_was_deleted_is_imported_again(source: Path, tmp_path: Path) -> None:
    output, target = tmp_path / "out", tmp_path / "in"
    with LogManager(str(source)) as engine:
        engine.create_topic("u", 1)
        append(engine, "u", range(3))
    run(source, output)
    imported(output, target)
    with LogManager(str(target)) as engine:
        engine.delete_topic("u")
    assert summary(imported(output, target)) == (2, 1)
    assert contents(target) == contents(source)


@pytest.mark.parametrize("format", FORMATS)
def test_a_flipped_bit_is_found(source: Path, tmp_path: Path, format: Format) -> None:
    output, target = tmp_path / "out", tmp_path / "restored"
    run(source, output, format=format)
    (path,) = output.glob(f"topic=t/date=2023-11-14/part-*.{format}")
    data = path.read_bytes()
    for place in range(0, len(data), len(data) // 40):
        flipped = bytes([data[place] ^ 1])
        path.write_bytes(data[:place] + flipped + data[place + 1 :])
        with pytest.raises(CorruptError, match="not those that were exported") as refused:
            imported(output, target)
        assert refused.value.file == str(path)
    path.unlink()
    run(source, output, format=format)  # as the error advises
    imported(output, target)
    assert contents(target) == contents(source)


def test_an_export_without_checksums(source: Path, tmp_path: Path) -> None:
    output, target = tmp_path / "out", tmp_path / "restored"
    run(source, output)
    for note in output.glob("_kafkafs/unit-*.json"):
        noted = json.loads(note.read_text())
        for file in noted["files"]:
            del file["crc32c"]
        note.write_text(json.dumps(noted))
    imported(output, target)
    assert contents(target) == contents(source)


# -- other Parquet files ---------------------------------------------------------------------------


@pytest.fixture
def target(tmp_path: Path) -> Path:
    with LogManager(str(tmp_path / "target")) as engine:
        engine.create_topic("t", 3)
    return tmp_path / "target"


def appended(target: Path, source: Path, topic: str = "t") -> list[Any]:
    request = ImportParquet.of(str(source), Selection.of(topic))
    with LogManager(str(target)) as engine:
        return list(import_parquet(engine, request))


def values(target: Path) -> list[bytes]:
    return sorted(record.value or b"" for log in contents(target).values() for record in log)


def test_keys_and_values(tmp_path: Path, target: Path) -> None:
    """Each key in the partition that Kafka's producer chooses; a file is imported once, and a new
    one beside it, too."""
    folder = tmp_path / "files"
    folder.mkdir()
    table = pa.table({"key": [f"k{n % 7}" for n in range(1000)], "value": map(str, range(1000))})
    pq.write_table(table, folder / "a.parquet", row_group_size=100)
    (folder / "_ignored.parquet").write_text("x")
    (folder / "readme.txt").write_text("x")
    assert summary(appended(target, folder)) == (1, 0)
    assert summary(appended(target, folder)) == (1, 1)
    assert values(target) == sorted(b"%d" % n for n in range(1000))
    by_key: dict[bytes | None, set[int]] = {}
    for (_, number), log in contents(target).items():
        for record in log:
            by_key.setdefault(record.key, set()).add(number)
    assert len(by_key) == 7
    assert all(len(numbers) == 1 for numbers in by_key.values())
    (folder / "more").mkdir()
    pq.write_table(table.slice(0, 5), folder / "more" / "b.parquet")
    assert summary(appended(target, folder)) == (2, 1)
    assert len(values(target)) == 1005


def test_other_columns(tmp_path: Path, target: Path) -> None:
    headers = [[{"key": "h", "value": b"1"}], []]
    times = pa.array([TIME * 1000, (TIME + 1) * 1000], pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "value": pa.array([b"a", None], pa.large_binary()),
            "timestamp": times,
            "partition": pa.array([2, 1], pa.int16()),
            "headers": headers,
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    appended(target, tmp_path / "a.parquet")
    found = contents(target)
    assert set(found) == {("t", 2), ("t", 1)}
    (one,), (two,) = found["t", 2], found["t", 1]
    assert (one.value, one.timestamp, one.headers) == (b"a", TIME, (("h", b"1"),))
    assert (two.value, two.timestamp, two.headers) == (None, TIME + 1, ())


def test_a_column_with_a_dictionary(tmp_path: Path, target: Path) -> None:
    """As pandas writes categories."""
    table = pa.table({"value": pa.array(["a", None, "b", "a"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "a.parquet")
    appended(target, tmp_path / "a.parquet")
    assert values(target) == [b"", b"a", b"a", b"b"]


@pytest.mark.parametrize("place", range(10, 400, 30))
def test_a_damaged_file_is_named(tmp_path: Path, target: Path, place: int) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"key": ["a", "b"], "value": ["c", None]}), path)
    data = bytearray(path.read_bytes())
    data[place : place + 30] = bytes(byte ^ 0xFF for byte in data[place : place + 30])
    path.write_bytes(data)
    with suppress(CorruptError, InvalidRecord):
        appended(target, path)
    with suppress(CorruptError):
        list(read_file(DirFd(str(tmp_path)).open(path.name)))


def test_files_with_anything_else_are_refused(tmp_path: Path, target: Path) -> None:
    path = tmp_path / "a.parquet"
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"value": ["a"], "amount": [1]}, InvalidRecord, "column amount is not a field"),
        ({"offset": [1]}, InvalidRecord, "there is neither a column key nor a column value"),
        ({"value": [1]}, InvalidRecord, "a column of keys or values is int64"),
        ({"value": ["a"], "timestamp": [1]}, InvalidRecord, "timestamp is int64"),
        ({"value": ["a"], "partition": ["0"]}, InvalidRecord, "partition is string, not a number"),
        ({"value": ["a"], "partition": [3]}, InvalidRecord, "a.parquet: t has no partition 3"),
        ({"value": ["a"], "partition": [-1]}, InvalidRecord, "a.parquet: .* partition -1"),
        (
            {"value": ["a"], "partition": pa.array([1 << 63], pa.uint64())},
            *(InvalidRecord, "a.parquet: .*9223372036854775808 not in range"),
        ),
        (
            {"key": ["k"] * 100_000, "timestamp": pa.array([0] * 99_999 + [-5], TIMES)},
            *(InvalidTimestamp, "a.parquet: row 99999: timestamp -5 is negative"),
        ),
        ({"value": ["a" * 2_000_000]}, MessageTooLarge, "a.parquet: batch 0: it has 20000"),
    ]
    before = fingerprint(target)
    for columns, error, why in cases:
        pq.write_table(pa.table(columns), path)
        with pytest.raises(error, match=why):
            appended(target, path)
    names = ["key", "key"]
    pq.write_table(pa.Table.from_arrays([pa.array(["a"])] * 2, names), path)
    with pytest.raises(InvalidRecord, match="several columns have the same name"):
        appended(target, path)
    assert not any(Path(f"{tmp_path}/.target.kafkafs-staging").iterdir())
    path.write_text("PAR1")
    with pytest.raises(CorruptError, match=r"a\.parquet: not a Parquet file"):
        appended(target, path)
    with pytest.raises(UnknownTopic):
        appended(target, path, "nope")
    for source, error, why in [
        (tmp_path / "nothing", LogDirError, "no such file or directory"),
        (tmp_path / "target", LogDirError, r"neither an export nor a directory with \*.parquet"),
    ]:
        with pytest.raises(error, match=why):
            appended(target, source)
    with pytest.raises(ValueError, match="name the one topic"):
        ImportParquet.of(str(path), Selection.of("t", "u"))
    assert values(target) == []
    assert {name for name in differences(before, fingerprint(target)) if ".log" in name} == set()
