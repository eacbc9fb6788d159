"""Erasing records: what remains is compared with a list, and no file keeps a trace."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.erasure.rewriting import RewrittenSegment, rewrite_segment
from kafkafs.storage.errors import (
    CleaningAborted,
    CorruptError,
    RecordNotFound,
    UnknownTopic,
)
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.operations import erase as module
from kafkafs.storage.operations.erase import Erase, ErasedFile, erase
from kafkafs.storage.operations.history import History, history
from kafkafs.storage.operations.request import PartitionFailed
from kafkafs.storage.segment.segment import Segment
from tests.building import BatchFields, MessageFields, build_batch, build_messages
from tests.erasing import (
    ALL,
    KEY,
    TOPIC,
    facts,
    findings,
    make,
    open_manager,
    partition,
    records_of,
    run,
    snapshot,
    sums,
    traces,
)
from tests.logs import write_topic
from tests.reading import UNCOMMITTED, read
from tests.waiting import wait_until
from tests.writing import NOW, batch


def test_all_records_of_a_key_are_gone_and_all_others_are_as_they_were(tmp_path: Path) -> None:
    expected = make(tmp_path)
    before, holding = sums(tmp_path), traces(tmp_path)
    with open_manager(tmp_path) as manager:
        writer = manager.writer(TOPIC, 0)
        states, end = writer.producer_states(), writer.end_offset
        stable = writer.last_stable_offset
        rows = run(manager, Erase(ALL, keys=frozenset([KEY])))
        assert (writer.producer_states(), writer.end_offset) == (states, end)
        assert writer.last_stable_offset == stable
        assert records_of(tmp_path) == expected
        assert not list(tmp_path.glob("*/*.deleted"))
    assert records_of(tmp_path) == expected
    after = sums(tmp_path)
    assert len(rows) > 5
    assert sorted(Path(row.file).name for row in rows) == sorted(holding)
    assert rows[0].size == max(row.size for row in rows)
    for row in rows:
        assert (row.sha256, row.new_sha256) == (before[row.file], after[row.file])
        assert row.new_size == Path(row.file).stat().st_size
    untouched = before.keys() - {row.file for row in rows}
    assert {file: before[file] for file in untouched} == {file: after[file] for file in untouched}
    assert traces(tmp_path) == []
    request = History(ALL, KEY, Isolation.READ_UNCOMMITTED)
    assert list(history(Engine([str(tmp_path)]), request)) == []
    assert findings(tmp_path) == []


def test_what_is_rebuilt_from_the_log_is_as_before(tmp_path: Path) -> None:
    """As after a crash, when nothing but the `.log` files is trusted."""
    expected = make(tmp_path)
    with open_manager(tmp_path) as manager:
        states = manager.writer(TOPIC, 0).producer_states()
        run(manager, Erase(ALL, keys=frozenset([KEY])))
    kept = snapshot(tmp_path)
    for file in tmp_path.rglob("*"):
        if file.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            file.unlink()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    with open_manager(tmp_path) as manager:
        assert manager.writer(TOPIC, 0).producer_states() == states
    assert records_of(tmp_path) == expected
    rebuilt = snapshot(tmp_path)
    for name, data in kept.items():
        if name.endswith((".log", ".index", ".timeindex")):
            assert rebuilt[name] == data, name
    assert findings(tmp_path) == []


@pytest.mark.parametrize("prefix", [b"person-7", b"person-", b"p", b"person-70"])
def test_all_keys_with_a_prefix(tmp_path: Path, prefix: bytes) -> None:
    make(tmp_path)
    before = records_of(tmp_path)
    with open_manager(tmp_path) as manager:
        rows = run(manager, Erase(ALL, prefix=prefix))
    expected = [each for each in before if not (each.key or b"").startswith(prefix)]
    assert records_of(tmp_path) == expected
    assert sum(row.records for row in rows) == len(before) - len(expected)
    assert findings(tmp_path) == []


@pytest.mark.parametrize("count", [2, 300, 5000])
def test_many_keys(tmp_path: Path, count: int) -> None:
    """Also keys of which there is no record, the empty one, and one that begins another."""
    make(tmp_path)
    with open_manager(tmp_path) as manager:
        for key in (b"", b"person", None):
            value = [SimpleRecord(NOW, key, b"value")]
            manager.writer(TOPIC, 0).append(build_batch(value, BatchFields(leader_epoch=-1)))
    before = records_of(tmp_path)
    keys = frozenset([KEY, b"", *(b"person-%d" % (number * 7) for number in range(1, count))])
    with open_manager(tmp_path) as manager:
        rows = run(manager, Erase(ALL, keys=keys))
    expected = [each for each in before if each.key not in keys]
    assert records_of(tmp_path) == expected
    assert sum(row.records for row in rows) == len(before) - len(expected)
    assert {b"person", None} < {each.key for each in expected}
    assert traces(tmp_path) == []
    assert findings(tmp_path) == []


def test_a_check_reads_no_further_than_to_the_first_record(tmp_path: Path) -> None:
    """Also the threads that search other files end."""
    make(tmp_path)
    engine = Engine([str(tmp_path)])
    assert Erase(ALL, prefix=b"person").check(engine) == ()
    wait_until(lambda: not [each for each in threading.enumerate() if "ahead" in each.name])


def test_one_offset(tmp_path: Path) -> None:
    make(tmp_path)
    before = records_of(tmp_path)
    for gone in (before[0], before[50], before[-1]):
        with open_manager(tmp_path) as manager:
            [row] = run(manager, Erase(Selection.of(f"{TOPIC}/0"), offset=gone.offset))
        assert row.records == 1
        before.remove(gone)
        assert records_of(tmp_path) == before
        assert findings(tmp_path) == []


def test_an_offset_without_a_record(tmp_path: Path) -> None:
    """That of a marker, one whose record was erased, and those past the log."""
    make(tmp_path)
    with open_manager(tmp_path) as manager:
        end = manager.writer(TOPIC, 0).end_offset
        before = {each.offset for each in records_of(tmp_path)}
        markers = sorted(set(range(end)) - before)
        assert markers
        run(manager, Erase(ALL, keys=frozenset([KEY])))
    gone = sorted(before - {each.offset for each in records_of(tmp_path)})
    files = sums(tmp_path)
    for offset in (markers[0], markers[-1], gone[0], gone[-1], end, 1 << 62):
        with open_manager(tmp_path) as manager:
            [failed] = erase(manager, Erase(Selection.of(f"{TOPIC}/0"), offset=offset))
        assert isinstance(failed, PartitionFailed)
        assert isinstance(failed.cause, RecordNotFound)
        assert failed.error == f"no record at offset {offset} is on the disk"
    assert sums(tmp_path) == files


def test_a_dry_run_finds_the_same_and_changes_nothing(tmp_path: Path) -> None:
    make(tmp_path)
    before = snapshot(tmp_path)
    found = list(erase(Engine([str(tmp_path)]), Erase(ALL, keys=frozenset([KEY]), dry_run=True)))
    assert snapshot(tmp_path) == before
    with open_manager(tmp_path) as manager:
        done = run(manager, Erase(ALL, keys=frozenset([KEY])))
    dry = [row for row in found if isinstance(row, ErasedFile)]
    assert [facts(row) for row in dry] == sorted(map(facts, done))


def test_what_is_not_there_is_one_failure(tmp_path: Path) -> None:
    make(tmp_path)
    before = snapshot(tmp_path)
    engine = Engine([str(tmp_path)])
    [failed] = Erase(ALL, keys=frozenset([b"nobody"])).check(engine)
    assert isinstance(failed.cause, RecordNotFound)
    assert (failed.where, failed.error) == (TOPIC, "no record with key nobody is on the disk")
    assert list(erase(engine, Erase(ALL, keys=frozenset([b"nobody"]), dry_run=True))) == [failed]
    assert Erase(ALL, keys=frozenset([KEY])).check(engine) == ()
    with pytest.raises(UnknownTopic):
        Erase(Selection.of("other"), keys=frozenset([KEY])).check(engine)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"selection": ALL}, "exactly one"),
        ({"selection": ALL, "keys": frozenset([b"k"]), "offset": 1}, "exactly one"),
        ({"selection": ALL, "offset": 1}, "an offset needs exactly one"),
        ({"selection": ALL, "prefix": b""}, "must not be empty"),
        ({"keys": frozenset([b"k"])}, "needs TOPIC"),
    ],
)
def test_requests_that_make_no_sense(wrong: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Erase(**wrong)


# -- damage ---------------------------------------------------------------------------------------


def test_damage_leaves_the_partition_as_it_was(tmp_path: Path) -> None:
    make(tmp_path)
    log = sorted(partition(tmp_path).glob("*.log"))[2]
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    before = sums(tmp_path)
    with open_manager(tmp_path) as manager:
        [failed] = erase(manager, Erase(ALL, keys=frozenset([KEY])))
    assert isinstance(failed, PartitionFailed)
    assert isinstance(failed.cause, CorruptError)
    assert str(log) in failed.error
    assert sums(tmp_path) == before


# -- old messages ---------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_old_formats(tmp_path: Path, magic: int, codec: Codec) -> None:
    """Kafka cannot write such a message without records, so it is dropped; the log's end stays."""
    keys = [[b"a", b"b", b"c"], [b"b", b"b"], [b"a", b"c", b"b"], [b"b"]]
    batches, offset = [], 0
    for each in keys:
        records = [SimpleRecord(NOW, key, b"of %s" % key) for key in each]
        fields = MessageFields(magic=magic, base_offset=offset, codec=codec)
        batches.append(build_messages(records, fields))
        offset += len(each)
    write_topic(tmp_path, batches, topic=TOPIC)
    expected = [each for each in records_of(tmp_path) if each.key != b"b"]
    with open_manager(tmp_path) as manager:
        [row] = run(manager, Erase(ALL, keys=frozenset([b"b"])))
        assert row.records == 5
        assert manager.writer(TOPIC, 0).end_offset == offset
    assert records_of(tmp_path) == expected
    with open_manager(tmp_path) as manager:
        run(manager, Erase(ALL, prefix=b"a"))
        run(manager, Erase(ALL, prefix=b"c"))
        assert manager.writer(TOPIC, 0).end_offset == offset
        manager.writer(TOPIC, 0).append(batch())
    assert [each.offset for each in records_of(tmp_path)] == [offset]


# -- while it is written to -----------------------------------------------------------------------


def test_a_log_that_grows_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount appends: the active segment is rolled, and the appended records stay."""
    expected = make(tmp_path)
    with open_manager(tmp_path) as manager:
        writer = manager.writer(TOPIC, 0)
        grown: list[int] = []

        def rewrite_and_append(segment: Segment, *rest: Any) -> RewrittenSegment:
            found: RewrittenSegment = rewrite_segment(segment, *rest)
            if segment.is_active and not grown:
                grown.append(writer.append(batch()).last_offset)
            return found

        monkeypatch.setattr(module, "rewrite_segment", rewrite_and_append)
        run(manager, Erase(ALL, keys=frozenset([KEY])))
        assert grown
        assert writer.end_offset == grown[0] + 1
    found = records_of(tmp_path)
    assert found[:-1] == expected
    assert found[-1].offset == grown[0]
    assert traces(tmp_path) == []
    assert findings(tmp_path) == []


def test_a_partition_that_is_being_cleaned_is_left_alone(tmp_path: Path) -> None:
    make(tmp_path)
    before = sums(tmp_path)
    with open_manager(tmp_path) as manager:
        with manager.cleaner.cleaning_state.in_progress((TOPIC, 0)):
            [failed] = erase(manager, Erase(ALL, keys=frozenset([KEY])))
        assert isinstance(failed, PartitionFailed)
        assert isinstance(failed.cause, CleaningAborted)
    assert sums(tmp_path) == before


# -- logs of real brokers -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kafka28", "compact-after"])
def test_logs_that_a_broker_wrote(writable_corpus: Callable[[str], Path], name: str) -> None:
    """Of all formats and codecs, with transactions, compacted ones."""
    root = writable_corpus(name)
    with open_manager(root) as manager:
        erased = 0
        for key, writer in manager.writers().items():
            log = manager.log(*key)
            before = read(log.view(), isolation=UNCOMMITTED)
            keys = sorted({each.key for each in before if each.key})
            if not keys:
                continue
            prefix = keys[len(keys) // 2][:-1] or keys[0]
            states, end = writer.producer_states(), writer.end_offset
            rows = run(manager, Erase(Selection((key,)), prefix=prefix))
            expected = [each for each in before if not (each.key or b"").startswith(prefix)]
            assert read(log.view(), isolation=UNCOMMITTED) == expected, key
            assert (writer.producer_states(), writer.end_offset) == (states, end)
            assert sum(row.records for row in rows) >= len(before) - len(expected)
            erased += 1
    assert erased > 15
    # A message of magic 0 or 1 that is not compressed leaves a gap.
    assert [each for each in findings(root) if " are in no batch" not in each] == []
