"""Deleting records, segments and topics that are also, or only, in remote storage, on copies of
what a real broker left. Remote storage is read to see what of it is still part of a log."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkafs.storage.clock import SystemClock
from kafkafs.storage.errors import (
    ConfigError,
    InRemoteStorage,
    OffsetOutOfRange,
    PartitionNotOpened,
)
from kafkafs.storage.format.files.checkpoints import parse_leader_epochs, parse_offsets
from kafkafs.storage.log.delete.deletions import Cause
from kafkafs.storage.log.delete.retention import Hold, Rule
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.compact import Compact, compact
from kafkafs.storage.operations.erase import Erase, erase
from kafkafs.storage.operations.expire import Expire, ExpiredSegment, expire
from kafkafs.storage.operations.first_pass import first_pass
from kafkafs.storage.operations.request import PartitionFailed
from kafkafs.storage.operations.topics import DeleteTopics, RemovedTopic, delete_topics
from kafkafs.storage.operations.verify import Verify, verify
from kafkafs.storage.segment.check.verify_index import Finding

#: Remote segments begin at 0, 185 and 358 and end at 524; local ones begin at 358 and 525, and the
#: log ends at 559. Leader epoch 0 begins at 0, epoch 2 at 384.
TOPIC = "t-none"
KEY = (TOPIC, 0)
EPOCHS = [(0, 0), (2, 384)]
#: Its ten rolled local segments, from 60 on, have an open transaction and are not copied.
OPEN = "t-open"


@pytest.fixture(name="data")
def _data(corpus: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of log directory and remote storage, `logs` and `tier`."""
    return Path(shutil.copytree(corpus("tier43"), tmp_path / "data"))


@contextmanager
def manager(
    data: Path, *, finds_deleted: bool = False, maintain: bool = False
) -> Iterator[LogManager]:
    path = str(data / "logs")
    with LogManager(path, finds_deleted=finds_deleted, maintain=maintain) as engine:
        yield engine


def tiered(data: Path) -> Engine:
    return Engine(str(data / "logs"), {"kafkafs.tier": str(data / "tier")})


def offsets(data: Path, topic: str = TOPIC) -> list[int]:
    """Returns what a reader sees of partition 0 of a topic in both places."""
    view = tiered(data).log(topic, 0).view()
    return [offset for part in view.read() for offset in part.offsets.tolist()]


def log_start(data: Path, topic: str = TOPIC) -> int:
    """Returns the log start offset with which a broker starts."""
    text = (data / "logs/log-start-offset-checkpoint").read_bytes()
    return parse_offsets(text).get((topic, 0), 0)


def epochs(data: Path, topic: str = TOPIC) -> list[tuple[int, int]]:
    text = (data / f"logs/{topic}-0/leader-epoch-checkpoint").read_bytes()
    return [(each.epoch, each.start_offset) for each in parse_leader_epochs(text)]


def segments(data: Path, topic: str = TOPIC) -> list[int]:
    return sorted(int(path.stem) for path in (data / f"logs/{topic}-0").glob("*.log"))


def files(data: Path) -> dict[str, bytes]:
    """Returns all that is in remote storage."""
    tier = data / "tier"
    return {str(each): each.read_bytes() for each in tier.rglob("*") if each.is_file()}


def expired(engine: Engine, *topics: str, dry_run: bool = False) -> list[ExpiredSegment]:
    selection = Selection(tuple((topic, 0) for topic in topics))
    rows = list(expire(engine, Expire(selection, None, dry_run, everything=True)))
    assert not [row for row in rows if isinstance(row, PartitionFailed)]
    return [row for row in rows if isinstance(row, ExpiredSegment)]


# -- retention ------------------------------------------------------------------------------------


def test_retention_deletes_what_was_copied_and_keeps_the_log_start(data: Path) -> None:
    before, remote = offsets(data), files(data)
    preview = expired(tiered(data), TOPIC, "t-lz4", OPEN, dry_run=True)
    with manager(data) as engine:
        rows = expired(engine, TOPIC, "t-lz4", OPEN)
    assert preview == rows
    deleted = {row.base_offset: row.outlook.rule for row in rows if row.is_deleted}
    assert deleted == {358: Rule.LOCAL_TIME, 201: Rule.LOCAL_TIME}
    assert {row.outlook.hold for row in rows if not row.is_deleted} == {Hold.NOT_COPIED}
    assert (segments(data), segments(data, "t-lz4")) == ([525], [305])
    assert len(segments(data, OPEN)) == 11
    assert (log_start(data), epochs(data)) == (0, EPOCHS)
    assert offsets(data) == before == list(range(559))
    assert files(data) == remote


def test_size_counts_only_local_bytes(data: Path) -> None:
    with manager(data) as engine:
        for name, text in (("retention.ms", "-1"), ("local.retention.bytes", "5000")):
            engine.set_topic_config(TOPIC, {name: text})
        assert expired(engine, TOPIC)[0].outlook.rule is Rule.LOCAL_SIZE
        (deletion,) = engine.deleted()
        assert deletion.cause is Cause.LOCAL_SIZE
    assert offsets(data) == list(range(559))


def test_what_is_not_known_to_be_copied_stays(data: Path) -> None:
    """The metadata is in the directories of other brokers."""
    for number in (0, 1):
        shutil.rmtree(data / f"logs/__remote_log_metadata-{number}")
    with manager(data) as engine:
        rows = expired(engine, TOPIC)
    assert {row.outlook.hold for row in rows} == {Hold.NOT_COPIED}
    assert segments(data) == [358, 525]


def test_damaged_metadata_tell_nothing(data: Path) -> None:
    for log in data.glob("logs/__remote_log_metadata-*/*.log"):
        whole = bytearray(log.read_bytes())
        whole[80] ^= 1
        log.write_bytes(whole)
    with manager(data) as engine:
        assert {row.outlook.hold for row in expired(engine, TOPIC)} == {Hold.NOT_COPIED}


def test_without_copying_the_log_is_retained_like_any_other(data: Path) -> None:
    """As a broker does with remote.log.copy.disable."""
    with manager(data) as engine:
        engine.set_topic_config(TOPIC, {"remote.log.copy.disable": "true"})
        assert {row.outlook.rule for row in expired(engine, TOPIC)} == {Rule.TIME}
    assert log_start(data) == 559


def test_maintained_directories_keep_the_whole_log(data: Path) -> None:
    with manager(data, maintain=True) as engine:
        assert engine.background_tasks.retain().keys() >= {KEY, ("t-lz4", 0)}
    assert offsets(data) == list(range(559))


def test_the_first_pass_is_announced(data: Path) -> None:
    dues = first_pass(Engine(str(data / "logs")), SystemClock().now_ms()).dues
    (due,) = (each for each in dues if KEY in each.partitions)
    why = "local.retention.ms as retention.ms=604800000, Kafka's default"
    assert due.cause == f"{why}; remote storage keeps its copies"


def test_a_restored_segment_leaves_the_log_start_as_it_is(data: Path) -> None:
    with manager(data) as engine:
        expired(engine, TOPIC)
        (restored,) = engine.undelete(TOPIC, 0, 400)
        assert (restored.start_offset, restored.end_offset) == (400, 525)
        assert engine.writer(*KEY).log_start_offset == 0
        assert engine.writer(*KEY).start_offset == 400
    assert (log_start(data), epochs(data), segments(data)) == (0, EPOCHS, [358, 525])
    with manager(data, finds_deleted=True) as engine:
        expired(engine, TOPIC)
    with manager(data, finds_deleted=True) as engine:
        engine.undelete(TOPIC, 0)
    assert (log_start(data), epochs(data), segments(data)) == (0, EPOCHS, [358, 525])
    assert offsets(data) == list(range(559))


# -- deleting records -----------------------------------------------------------------------------


@pytest.mark.parametrize("start", [358, 400, 525, 559])
def test_records_that_were_deleted_do_not_come_back_from_remote_storage(
    data: Path, start: int, caplog: pytest.LogCaptureFixture
) -> None:
    remote = files(data)
    with manager(data) as engine:
        assert engine.writer(*KEY).delete_records(start) == start
        assert engine.background_tasks.finish_deletions({KEY}) == set()
    assert "offsets 0 to 357 are deleted, too, which are in remote storage only" in caplog.text
    for _ in range(2):
        assert log_start(data) == start
        assert offsets(data) == list(range(start, 559))
        with manager(data):
            pass
    assert epochs(data) == ([(0, start), (2, 384)] if start < 384 else [(2, start)])
    assert files(data) == remote


def test_the_end_of_a_segment_in_remote_storage_needs_no_index(data: Path) -> None:
    """The log begins at 400: of the last segment there only what is in leader epoch 2 counts."""
    with manager(data) as engine:
        engine.writer(*KEY).delete_records(400)
    for path in (data / f"logs/{TOPIC}-0").glob("*358.*"):
        path.unlink()
    with manager(data):
        pass
    assert epochs(data) == [(2, 400)]
    assert offsets(data) == list(range(400, 559))
    found = list(verify(tiered(data), Verify(Selection((KEY,)))))
    assert [row for row in found if isinstance(row, Finding)] == []


def test_records_that_only_remote_storage_has(data: Path) -> None:
    with manager(data) as engine:
        writer = engine.writer(*KEY)
        assert writer.delete_records(200) == 200
        assert (writer.start_offset, writer.log_start_offset) == (358, 200)
        assert writer.delete_records(100) == 200
    with manager(data) as engine:
        assert engine.writer(*KEY).log_start_offset == 200
    assert (log_start(data), epochs(data)) == (200, [(0, 200), (2, 384)])
    assert offsets(data) == list(range(200, 559))


def test_both_parts_come_back(data: Path) -> None:
    with manager(data) as engine:
        engine.writer(*KEY).delete_records(530)
        engine.background_tasks.finish_deletions({KEY})
        assert (log_start(data), segments(data)) == (530, [525])
        engine.undelete(TOPIC, 0)
        assert log_start(data) == 0
        assert epochs(data) == EPOCHS
        assert offsets(data) == list(range(559))
        engine.writer(*KEY).delete_records(530)
        engine.undelete(TOPIC, 0, 400)
    assert (log_start(data), offsets(data)) == (400, list(range(400, 559)))


def test_local_records_come_back_after_retention_and_deletion(data: Path) -> None:
    with manager(data) as engine:
        expired(engine, TOPIC)
        engine.writer(*KEY).delete_records(530)
        engine.undelete(TOPIC, 0)
    assert (log_start(data), epochs(data), segments(data)) == (0, EPOCHS, [358, 525])


def test_nothing_goes_before_the_log_start_is_durable(data: Path, tmp_path: Path) -> None:
    """After a crash the log must not begin in remote storage and lack what was deleted here. A
    segment and the leader epochs must stay, by which a broker finds what is there."""
    with manager(data) as engine:
        writer = engine.writer(*KEY)
        writer.delete_records(559)
        engine.set_topic_config(TOPIC, {"local.retention.ms": "-1", "local.retention.bytes": "-1"})
        assert not engine.background_tasks.retain().get(KEY)
        writer.roll()
        assert writer.delete_below_start() == 0
        crashed = Path(shutil.copytree(data, tmp_path / "crashed"))
        engine.background_tasks.finish_deletions({KEY})
        assert segments(data) == [559]
    assert (epochs(crashed), log_start(crashed)) == (EPOCHS, 0)
    assert offsets(crashed) == list(range(559))
    with manager(crashed) as engine:
        assert engine.writer(*KEY).log_start_offset == 0
    assert offsets(crashed) == list(range(559))


def test_a_log_with_a_remote_part_does_not_begin_again(data: Path) -> None:
    with manager(data) as engine:
        why = "0 to 357 are in remote storage only"
        with pytest.raises(OffsetOutOfRange, match=why):
            engine.truncate_to(TOPIC, 0, 100)
        with pytest.raises(OffsetOutOfRange, match=why):
            engine.writer(*KEY).truncate_fully_and_start_at(900)
    assert offsets(data) == list(range(559))


# -- what is not known ----------------------------------------------------------------------------


def test_without_the_clusters_metadata(data: Path) -> None:
    """It is in another directory: whether a topic has remote storage is not known."""
    shutil.rmtree(data / "logs/__cluster_metadata-0")
    with manager(data) as engine:
        assert {row.outlook.hold for row in expired(engine, TOPIC) if not row.is_deleted} == {
            Hold.NOT_COPIED
        }
        with pytest.raises(InRemoteStorage):
            engine.delete_topic(TOPIC)
    assert (log_start(data), epochs(data), segments(data)) == (0, EPOCHS, [525])
    with manager(data) as engine:
        engine.writer(*KEY).delete_records(559)
        engine.background_tasks.finish_deletions({KEY})
    assert (log_start(data), segments(data)) == (559, [525])
    for _ in range(2):
        with manager(data) as engine:
            engine.writer(*KEY).roll()
            engine.background_tasks.finish_deletions({KEY})
        assert (log_start(data), segments(data)) == (559, [559])


def test_a_trimmed_log_without_remote_storage_is_retained_by_its_configs(data: Path) -> None:
    """The cluster's metadata is elsewhere, and the log start offset is within the first segment."""
    shutil.rmtree(data / "logs/__cluster_metadata-0")
    with manager(data) as engine:
        engine.writer("t-local", 0).delete_records(5)
    assert log_start(data, "t-local") == 5
    with manager(data) as engine:
        assert {row.outlook.rule for row in expired(engine, "t-local")} == {Rule.TIME}


@pytest.mark.parametrize("what", ["epochs", "segments"])
def test_a_partition_that_forgot_its_remote_part_is_not_opened(data: Path, what: str) -> None:
    directory = data / f"logs/{TOPIC}-0"
    if what == "epochs":
        (directory / "leader-epoch-checkpoint").write_text("torn")
    else:
        for path in directory.glob("0*"):
            path.unlink()
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with manager(data) as engine, pytest.raises(PartitionNotOpened, match="remote storage may"):
        engine.writer(*KEY)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert log_start(data) == 0


# -- topics ---------------------------------------------------------------------------------------


def test_a_topic_in_remote_storage_is_not_deleted(data: Path) -> None:
    remote = files(data)
    there = "3 segments of t-none/0 with offsets 0 to 524 .* are in remote storage"
    (refused,) = DeleteTopics((TOPIC,)).check(Engine(str(data / "logs")))
    assert re.search(there, refused.error)
    with manager(data) as engine:
        with pytest.raises(InRemoteStorage, match=there):
            engine.delete_topic(TOPIC)
        assert TOPIC in engine.topics()
        engine.delete_topic("t-local")
        (removed,) = delete_topics(engine, DeleteTopics((TOPIC,), keep_remote=True))
        assert isinstance(removed, RemovedTopic)
        assert removed.warning.startswith(f"{TOPIC}: kept: 3 segments")
        assert TOPIC not in engine.topics()
        engine.undelete(TOPIC)
    assert (log_start(data), offsets(data)) == (0, list(range(559)))
    assert files(data) == remote


def test_a_topic_that_was_never_copied_is_deleted(data: Path) -> None:
    with manager(data) as engine:
        engine.create_topic("new", 1, {"remote.storage.enable": "true"}, unregistered=True)
        engine.delete_topic("new")
    for number in (0, 1):
        shutil.rmtree(data / f"logs/__remote_log_metadata-{number}")
    with manager(data) as engine, pytest.raises(InRemoteStorage, match="may be in remote storage"):
        engine.delete_topic(TOPIC)


def test_remote_storage_is_not_disabled_while_it_has_segments(data: Path) -> None:
    with manager(data) as engine:
        for text, why in (("false", "3 segments of t-none/0"), ("true", "must be delete")):
            changes = {"remote.storage.enable": text, "cleanup.policy": "compact"}
            with pytest.raises(ConfigError, match=why):
                engine.set_topic_config(TOPIC, changes)
        assert not engine.stored_configs(TOPIC)


def test_a_topic_with_remote_storage_is_never_compacted(data: Path) -> None:
    configs = {"cleanup.policy": "compact"}
    with LogManager(str(data / "logs"), configs) as engine:
        (failed,) = compact(engine, Compact(Selection((KEY,)), force=True))
        assert isinstance(failed, PartitionFailed)
        assert "remote.storage.enable=true cannot be compacted" in failed.error
        engine.cleaner.run()
    assert offsets(data) == list(range(559))


def test_erasing_names_what_is_in_remote_storage(data: Path) -> None:
    with manager(data) as engine:
        rows = list(erase(engine, Erase(Selection((KEY,)), offset=400)))
    failed = next(row for row in rows if isinstance(row, PartitionFailed))
    assert "3 segments of t-none/0 with offsets 0 to 524" in failed.error
    assert failed.error.endswith("are in remote storage; nothing is searched there")
