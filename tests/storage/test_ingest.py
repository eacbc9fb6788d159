"""Tests the ingest of staged segments: the resulting log, rejected parts, and what a broker may
have done in between."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import (
    CorruptError,
    InvalidTopic,
    LogDirOffline,
    MessageTooLarge,
    OffsetOutOfRange,
    TopicExists,
    UnknownTopic,
)
from kafkafs.storage.format.files.names import FileState
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import (
    RecordColumns,
    SimpleRecord,
)
from kafkafs.storage.ingest import two_phase
from kafkafs.storage.ingest.commit_file import (
    COMMIT_FILE,
    CommitRecord,
    CommitRecords,
    IngestedPart,
    IngestWrite,
    StagedPart,
    StartedWrite,
    format_commit_records,
    parse_commit_records,
)
from kafkafs.storage.ingest.segment_series import SealedSegment
from kafkafs.storage.ingest.staging import StagedWriter, StagingPlace, staging_path
from kafkafs.storage.ingest.two_phase import ingest_parts
from kafkafs.storage.io.durable import Buffer, Calls, replaced
from kafkafs.storage.log_manager import LogManager
from tests.crash.checks import complaints
from tests.faults import path_of
from tests.reading import read
from tests.staging import ALL, JOINED, NONE, NOW_MS, large_from, stage

SETTINGS = {"internal.segment.bytes": "300", "segment.index.bytes": "400"}


@pytest.fixture(autouse=True, params=[NONE, ALL, JOINED], ids=["copied", "linked", "joined"])
def _large(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs the tests with staged segments copied, linked, and joined to the active segment."""
    with large_from(request.param):
        yield


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    with LogManager(str(path), clock=SetClock(NOW_MS)) as engine:
        engine.create_topic("t", 2, SETTINGS)
    return path


@pytest.fixture
def engine(log_dir: Path) -> Iterator[LogManager]:
    with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
        yield engine
        assert complaints(engine) == []


def values(engine: LogManager, partition: int) -> list[str]:
    return [(each.value or b"").decode() for each in read(engine.log("t", partition).view())]


def append(engine: LogManager, value: str) -> None:
    records = RecordColumns.from_records([SimpleRecord(NOW_MS, b"k", value.encode())])
    engine.writer("t", 0).append_records(records)


def staged_dirs(log_dir: Path) -> list[Path]:
    place_ = Path(staging_path(str(log_dir)))
    return [path for path in place_.rglob("*") if path.is_file()]


def test_parts_come_behind_what_is_there_in_their_order(log_dir: Path, engine: LogManager) -> None:
    append(engine, "before")
    first = stage(log_dir, "j", {("t", 0): [["a", "b"], ["c"]], ("t", 1): [["x"]]}, "0")
    second = stage(log_dir, "j", {("t", 0): [["d"]]}, "1")
    placed = ingest_parts(engine, IngestWrite("j"), [*first, *second])
    append(engine, "behind")
    assert placed.offsets == {("t", 0): range(1, 5), ("t", 1): range(1)}
    assert values(engine, 0) == ["before", "a", "b", "c", "d", "behind"]
    assert values(engine, 1) == ["x"]
    assert staged_dirs(log_dir) == []


def test_a_numbered_write_is_done_once(log_dir: Path) -> None:
    for _ in range(2):
        for epoch in (4, 4, 3):
            with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
                parts = stage(log_dir, f"j{epoch}", {("t", 0): [["a"]]}, f"{id(engine)}")
                placed = ingest_parts(engine, IngestWrite("w", epoch), parts)
                assert placed.is_repeated is (len(values(engine, 0)) == 1 and not placed.offsets)
                assert values(engine, 0) == ["a"]
    assert staged_dirs(log_dir) == []


def test_offsets_that_are_kept(log_dir: Path) -> None:
    with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
        place_kept(log_dir, engine)


def place_kept(log_dir: Path, engine: LogManager) -> None:
    append(engine, "before")
    directory = StagingPlace(staging_path(str(log_dir))).attempt("j", "0")
    config = engine.topic_config("t").config
    writer = StagedWriter(directory, "t", 0, config, keeps_offsets=True)
    for at, value in ((10, b"a"), (11, b"b"), (70, b"c")):
        writer.append_records(RecordColumns.from_values([value]), BatchPlan(), NOW_MS, at)
    with pytest.raises(OffsetOutOfRange, match="70"):
        writer.append_records(RecordColumns.from_values([b"d"]), BatchPlan(), NOW_MS, 70)
    part = writer.finish()
    assert ingest_parts(engine, IngestWrite("j"), [part]).offsets == {("t", 0): range(10, 71)}
    found = read(engine.log("t", 0).view())
    assert [(each.offset, each.value) for each in found[1:]] == [(10, b"a"), (11, b"b"), (70, b"c")]
    assert engine.writer("t", 0).end_offset == 71


def test_offsets_that_are_taken_are_refused(log_dir: Path, engine: LogManager) -> None:
    append(engine, "before")
    directory = StagingPlace(staging_path(str(log_dir))).attempt("j", "0")
    writer = StagedWriter(directory, "t", 0, engine.topic_config("t").config, keeps_offsets=True)
    writer.append_records(RecordColumns.from_values([b"a"]), BatchPlan(), NOW_MS, 0)
    with pytest.raises(OffsetOutOfRange, match="below the log end offset 1"):
        ingest_parts(engine, IngestWrite("j"), [writer.finish()])
    assert values(engine, 0) == ["before"]


def test_raw_batches_and_what_their_producers_did(log_dir: Path, engine: LogManager) -> None:
    producing = engine.writer("t", 1)
    plan = BatchPlan(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    producing.append_records(RecordColumns.from_values([b"a"]), plan)
    producing.end_transaction(7, 1, commit=False)
    batches = (log_dir / "t-1" / f"{0:020}.log").read_bytes()[: producing.size]
    directory = StagingPlace(staging_path(str(log_dir))).attempt("j", "0")
    writer = StagedWriter(directory, "t", 0, engine.topic_config("t").config, keeps_offsets=True)
    writer.append_batches(batches, NOW_MS)
    ingest_parts(engine, IngestWrite("j"), [writer.finish()])
    assert engine.writer("t", 0).producers.states() == producing.producers.states()
    assert (log_dir / "t-0" / f"{0:020}.txnindex").read_bytes() == (
        log_dir / "t-1" / f"{0:020}.txnindex"
    ).read_bytes()


def test_limits_of_the_topic(log_dir: Path, engine: LogManager) -> None:
    engine.set_topic_config("t", {"max.message.bytes": "200"})
    with pytest.raises(MessageTooLarge):
        stage(log_dir, "j", {("t", 0): [["a" * 200]]})


def test_what_is_refused_leaves_all_as_it_was(log_dir: Path, engine: LogManager) -> None:
    parts = stage(log_dir, "j", {("t", 0): [["a"]], ("t", 1): [["b"]]})
    lost = dataclasses.replace(parts[0], topic="u")
    with pytest.raises(UnknownTopic):
        ingest_parts(engine, IngestWrite("j"), [parts[1], lost])
    log = next(Path(parts[1].path).glob("*.log.cleaned"))
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptError) as caught:
        ingest_parts(engine, IngestWrite("j"), parts)
    assert caught.value.file == str(log)
    assert values(engine, 0) == values(engine, 1) == []
    append(engine, "goes on")
    assert not list((log_dir / "t-0").glob("*.cleaned"))


def linked(log_dir: Path) -> int:
    """Returns how many files of the partition have a second hard link."""
    return sum(path.stat().st_nlink > 1 for path in (log_dir / "t-0").iterdir())


@pytest.mark.parametrize("_large", [ALL], indirect=True)
def test_large_segments_are_taken_as_they_are(
    log_dir: Path, engine: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files are in the log, and nowhere else once the staged names are removed."""
    parts = stage(log_dir, "j", {("t", 0): [["a"], ["b"], ["c"], ["d"], ["e"]]})
    logs = sorted(Path(parts[0].path).glob("*.log.cleaned"))
    numbers = {path.stat().st_ino for path in logs}
    remove = two_phase._remove
    seen = []
    monkeypatch.setattr(two_phase, "_remove", lambda parts: seen.append(linked(log_dir)))
    append(engine, "before")
    ingest_parts(engine, IngestWrite("j"), parts)
    assert seen == [3 * len(logs)]
    remove(parts)
    assert linked(log_dir) == 0
    assert numbers < {path.stat().st_ino for path in (log_dir / "t-0").glob("*.log")}
    assert values(engine, 0) == ["before", *"abcde"]


class FailsAfterDeciding(Calls):
    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if path_of(fd).endswith(".log"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().pwritev(fd, buffers, position)

    def rename(self, old: str, new: str, directory: int) -> None:
        if FileState.CLEANED.value in old:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().rename(old, new, directory)


class CannotLink(Calls):
    def __init__(self, number: int, at: int) -> None:
        self.number = number
        self.left = at

    def link(self, old: str, source: int, new: str, target: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(self.number, os.strerror(self.number))
        super().link(old, source, new, target)


@pytest.mark.parametrize("at", range(4))
def test_what_cannot_be_linked_is_copied(log_dir: Path, engine: LogManager, at: int) -> None:
    """This is what happens across file systems."""
    parts = stage(log_dir, "j", {("t", 0): [["a"], ["b"], ["c"], ["d"], ["e"]]})
    with replaced(CannotLink(errno.EXDEV, at)):
        ingest_parts(engine, IngestWrite("j"), parts)
    assert values(engine, 0) == list("abcde")


def test_what_has_another_name_or_another_owner_is_copied(
    log_dir: Path, engine: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = stage(log_dir, "j", {("t", 0): [["a"]], ("t", 1): [["b"]]})
    log = next(Path(parts[0].path).glob("*.log.cleaned"))
    (log_dir.parent / "other").hardlink_to(log)
    before = log.read_bytes()
    append(engine, "before")
    ingest_parts(engine, IngestWrite("j"), parts[:1])
    assert (log_dir.parent / "other").read_bytes() == before
    number = next(Path(parts[1].path).glob("*.log.cleaned")).stat().st_ino
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    ingest_parts(engine, IngestWrite("k"), parts[1:])
    assert number not in {path.stat().st_ino for path in (log_dir / "t-1").iterdir()}
    assert [values(engine, each) for each in range(2)] == [["before", "a"], ["b"]]


def test_segments_that_are_too_large_by_now_are_made_anew(
    log_dir: Path, engine: LogManager
) -> None:
    parts = stage(log_dir, "j", {("t", 0): [["a" * 50], ["b" * 50]]})
    engine.set_topic_config("t", {**SETTINGS, "internal.segment.bytes": "150"})
    ingest_parts(engine, IngestWrite("j"), parts)
    assert max(path.stat().st_size for path in (log_dir / "t-0").glob("*.log")) <= 150
    assert values(engine, 0) == ["a" * 50, "b" * 50]


def test_a_segment_that_was_taken_once_is_taken_again(log_dir: Path) -> None:
    """A broker may start between the commit and its completion: it removes files that do not count
    yet, and appends. The staged segments had offsets by then, and nothing of that is left."""
    with suppress(LogDirOffline), LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
        parts = stage(log_dir, "j", {("t", 0): [["a"], ["b"], ["c"], ["d"], ["e"]]})
        with replaced(FailsAfterDeciding()), pytest.raises(LogDirOffline):
            ingest_parts(engine, IngestWrite("j"), parts)
    (log_dir / COMMIT_FILE).rename(log_dir / "noted")
    with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
        append(engine, "a broker's")
        assert values(engine, 0) == ["a broker's"]
    assert opened_again(log_dir) == ["a broker's", *"abcde"]


def test_a_partition_that_cannot_be_opened_gets_its_segments_later(log_dir: Path) -> None:
    with suppress(LogDirOffline), LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
        parts = stage(log_dir, "j", {("t", 0): [["a"], ["b"]]})
        with replaced(FailsAfterDeciding()), pytest.raises(LogDirOffline):
            ingest_parts(engine, IngestWrite("j"), parts)
    (log_dir / COMMIT_FILE).rename(log_dir / "noted")
    with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
        append(engine, "a broker's")
    log = log_dir / "t-0" / f"{0:020}.log"
    log.rename(log_dir / "log")
    os.mkfifo(log)
    (log_dir / "noted").rename(log_dir / COMMIT_FILE)
    staged = staged_dirs(log_dir)
    with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
        assert engine.commits.pending()
    assert staged_dirs(log_dir) == staged != []
    (log_dir / "log").replace(log)
    with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
        assert not engine.commits.pending()
        assert values(engine, 0) == ["a broker's", "a", "b"]


def decided_and_not_noted(log_dir: Path, settings: dict[str, str]) -> None:
    """Swaps a write in, but leaves its staged files, as a crash before their removal does."""
    with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
        engine.set_topic_config("t", settings)
        append(engine, "before")
        parts = stage(log_dir, "j", {("t", 0): [["a"], ["b"], ["c"], ["d"], ["e"]]})
        kept = log_dir.parent / "kept"
        shutil.copytree(staging_path(str(log_dir)), kept)
        segments = []
        placed = ingest_parts(engine, IngestWrite("j"), parts).offsets["t", 0]
        for segment in parts[0].segments:
            base, end = (placed.start + at for at in (segment.base_offset, segment.end_offset))
            segments.append(SealedSegment(base, segment.size, end, segment.crc))
        append(engine, "behind")
    shutil.rmtree(staging_path(str(log_dir)))
    kept.rename(staging_path(str(log_dir)))
    pending = CommitRecord(
        IngestWrite("j"), (IngestedPart("t", 0, 0, tuple(parts), tuple(segments)),)
    )
    (log_dir / "noted").write_bytes(format_commit_records(CommitRecords(pending=[pending])))


def opened_again(log_dir: Path) -> list[str]:
    (log_dir / "noted").rename(log_dir / COMMIT_FILE)
    with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
        assert not engine.commits.pending()
        return values(engine, 0)


def test_what_was_placed_and_then_deleted_does_not_come_again(log_dir: Path) -> None:
    decided_and_not_noted(log_dir, {})
    with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
        engine.writer("t", 0).delete_records(4)
        engine.writer("t", 0).retain()
        left = values(engine, 0)
    assert opened_again(log_dir) == left
    assert left[-1] == "behind"


def test_what_was_placed_and_then_compacted_does_not_come_again(log_dir: Path) -> None:
    decided_and_not_noted(
        log_dir, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    )
    with LogManager(str(log_dir), clock=SetClock(NOW_MS + 10**9)) as engine:
        engine.writer("t", 0).roll()
        engine.cleaner.run()
        left = values(engine, 0)
    assert left == ["behind"]
    assert opened_again(log_dir) == left


# -- topics that are created for a write ---------------------------------------------------------


def stage_new(log_dir: Path, engine: LogManager) -> list[StagedPart]:
    """Stages segments for a topic `new` with two partitions, as if it existed."""
    engine.create_topic("new", 2, SETTINGS)
    parts = stage(log_dir, "j", {("new", 0): [["a"]], ("new", 1): [["b"], ["c"]]})
    engine.delete_topic("new")
    return parts


def notes(log_dir: Path) -> CommitRecords:
    return parse_commit_records((log_dir / COMMIT_FILE).read_bytes())


def test_topics_are_made_for_a_write(log_dir: Path, engine: LogManager) -> None:
    parts = stage_new(log_dir, engine)
    placed = ingest_parts(engine, IngestWrite("j"), parts, {"new": 3, "empty": 1})
    assert placed.offsets == {("new", 0): range(1), ("new", 1): range(2)}
    assert engine.topics()["new"] == [0, 1, 2]
    assert engine.topics()["empty"] == [0]
    read_again = [read(engine.log("new", number).view()) for number in range(3)]
    assert [[each.value for each in some] for some in read_again] == [[b"a"], [b"b", b"c"], []]
    assert notes(log_dir) == CommitRecords({}, [], [])


def test_topics_that_are_made_for_nothing_go_again(log_dir: Path, engine: LogManager) -> None:
    parts = stage_new(log_dir, engine)
    log = Path(parts[0].path) / f"{0:020}.log.cleaned"
    data = log.read_bytes()
    log.write_bytes(data[:-1] + b"?")
    for new in (
        {"new": 2},
        {"new": 2, "other": 1},
        {"new": 2, "wrong name": 1},
        {"new": 2, "t": 1},
    ):
        with pytest.raises((CorruptError, InvalidTopic, TopicExists)):
            ingest_parts(engine, IngestWrite("j"), parts, new)
        assert engine.topics().keys() == {"t"}
        assert notes(log_dir) == CommitRecords({}, [], [])
    assert engine.topics()["t"] == [0, 1]
    log.write_bytes(data)
    ingest_parts(engine, IngestWrite("j"), parts, {"new": 2})
    assert [each.value for each in read(engine.log("new", 0).view())] == [b"a"]


def test_topics_that_a_crash_left_go_when_the_directories_are_opened(log_dir: Path) -> None:
    with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
        ids = {topic: engine.create_topic(topic) for topic in ("mine", "used", "theirs")}
        ids["theirs"] = ids["mine"]
        ids["never"] = ids["mine"]
        engine.commits.start(IngestWrite("j"), ids)
        engine.writer("used", 0).append_records(
            RecordColumns.from_records([SimpleRecord(NOW_MS, b"k", b"v")])
        )
    with LogManager(str(log_dir), clock=SetClock(NOW_MS)) as engine:
        assert engine.topics().keys() == {"t", "used", "theirs"}
        assert not engine.commits.started()
    assert notes(log_dir) == CommitRecords({}, [], [])


def test_what_another_directory_says_is_decided_is_not_undone(tmp_path: Path) -> None:
    """One directory was offline at the commit."""
    paths = [str(tmp_path / name) for name in ("one", "two")]
    with LogManager(paths) as engine:
        topic_id = engine.create_topic("new")
    started, pending = (
        StartedWrite(IngestWrite("j"), {"new": topic_id}),
        CommitRecord(IngestWrite("j"), ()),
    )
    for path, noted in zip(
        paths, (CommitRecords(started=[started]), CommitRecords(pending=[pending])), strict=True
    ):
        Path(path, COMMIT_FILE).write_bytes(format_commit_records(noted))
    with LogManager(paths) as engine:
        assert engine.topics().keys() == {"new"}
        assert not engine.commits.started()


def test_stale_jobs_are_found(tmp_path: Path) -> None:
    staging = StagingPlace(str(tmp_path / "kafkafs-staging"))
    assert staging.stale(lambda name, changed: True) == []
    for job in ("alive", "dead"):
        (Path(staging.attempt(job, "0").path) / "file").touch()
    assert staging.stale(lambda name, changed_ms: name == "dead" and changed_ms > 0) == ["dead"]
    staging.remove("dead")
    assert [path.name for path in (tmp_path / "kafkafs-staging").iterdir()] == ["alive"]
