"""Tests swapping in cleaned segments: interrupted anywhere, the log has the old ones or the new."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkafs.storage.config.kafka import TopicConfig
from kafkafs.storage.errors import LogDirOffline
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.durable import WritableDirFd, replaced
from kafkafs.storage.log.delete.deleted import DeletedFiles
from kafkafs.storage.log.delete.replacing import discard_cleaned, replace_files
from kafkafs.storage.log.load.log_loader import LogLoader
from tests.building import BatchFields, build_batch
from tests.faults import FailingCalls, RecordingCalls, crash_states
from tests.logs import TopicSettings, rebuild_indexes, walk, write_partition
from tests.reading import open_log, open_view, read
from tests.writing import Unsynced

TIME = 1_700_000_000_000
INTERVAL = 200
RECORDS = 3
SETTINGS = TopicSettings(1000, segment_index_bytes=1200, index_interval_bytes=INTERVAL)
CONFIG = TopicConfig(segment_index_bytes=1200, index_interval_bytes=INTERVAL)
DUE = 60_000


def batch(base: int) -> bytes:
    made = [SimpleRecord(TIME + base + n, b"k", bytes(40), offset=base + n) for n in range(RECORDS)]
    return build_batch(made, BatchFields(base_offset=base, leader_epoch=0))


@dataclass(frozen=True, slots=True)
class Exchange:
    """A partition whose segments [1, 4) are cleaned into the first of them."""

    partition: Path
    bases: list[int]
    end: int
    kept: frozenset[int]  # retained offsets of the cleaned segments

    @property
    def old(self) -> list[int]:
        return self.bases[1:4]

    @property
    def directory(self) -> WritableDirFd:
        return WritableDirFd(str(self.partition.parent)).child(self.partition.name)

    def run(self) -> DeletedFiles:
        deleted = DeletedFiles(self.directory)
        replace_files(self.directory, [self.bases[1]], self.old, deleted, DUE)
        return deleted

    def must_have(self) -> set[int]:
        """Returns the offsets that must be present before and after the swap."""
        cleaned = set(range(self.bases[1], self.bases[4]))
        return set(range(self.end)) - cleaned | self.kept


# Which batches of the cleaned segments are retained.
KEPT: dict[str, Callable[[int], bool]] = {
    "some": lambda number: number % 2 == 0,
    "all": lambda number: True,
    "the first": lambda number: number < 2,
    "the last": lambda number: number > 8,
    "none": lambda number: False,
}


def exchange(path: Path, which: str = "some", aborted: bytes = b"") -> Exchange:
    partition = path / "t-0"
    writer = write_partition(partition, [batch(n * RECORDS) for n in range(40)], SETTINGS)
    bases = writer.bases
    assert len(bases) > 5
    data = b"".join((partition / f"{base:020}.log").read_bytes() for base in bases[1:4])
    chosen = [header for n, header in enumerate(walk(data)) if KEPT[which](n)]
    log = b"".join(data[each.position : each.position + each.size] for each in chosen)
    indexes = rebuild_indexes(log, bases[1], INTERVAL)
    files = {"log": log, "index": indexes.offset_bytes(), "timeindex": indexes.time_bytes()}
    if aborted:
        files["txnindex"] = aborted
        for base in bases[1:4]:
            (partition / f"{base:020}.txnindex").write_bytes(aborted)
    for suffix, content in files.items():
        (partition / f"{bases[1]:020}.{suffix}.cleaned").write_bytes(content)
    kept = {offset for each in chosen for offset in range(each.base_offset, each.last_offset + 1)}
    return Exchange(partition, bases, writer.end_offset, frozenset(kept))


def names(partition: Path, suffixes: Sequence[str] = (".cleaned", ".swap")) -> list[str]:
    return sorted(p.name for p in partition.iterdir() if p.name.endswith(tuple(suffixes)))


def files(partition: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in partition.iterdir()}


def offsets(partition: Path) -> list[int]:
    return [each.offset for each in read(open_view(partition))]


def recovered(partition: Path) -> list[int]:
    """Loads the partition; returns its offsets."""
    directory = WritableDirFd(str(partition.parent)).child(partition.name)
    planned = LogLoader(directory, 0, 0, False, CONFIG, TIME).plan()
    with replaced(Unsynced()):
        planned.apply(directory)
    assert planned.end_offset == 120
    assert not planned.faults
    again = LogLoader(directory, 0, 0, False, CONFIG, TIME).plan()
    assert again.actions == []
    return offsets(partition)


@pytest.mark.parametrize("which", KEPT)
def test_what_is_there_afterwards(tmp_path: Path, which: str) -> None:
    made = exchange(tmp_path, which, aborted=b"\0" * 34)
    cleaned = (made.partition / f"{made.bases[1]:020}.log.cleaned").read_bytes()
    deleted = made.run()
    assert offsets(made.partition) == sorted(made.must_have())
    assert (made.partition / f"{made.bases[1]:020}.log").read_bytes() == cleaned
    logs = sorted(int(path.stem) for path in made.partition.glob("*.log"))
    assert logs == [*made.bases[:2], *made.bases[4:]]
    assert names(made.partition) == []
    kinds = ("log", "index", "timeindex", "txnindex")
    gone = sorted(f"{base:020}.{kind}.deleted" for base in made.old for kind in kinds)
    assert names(made.partition, [".deleted"]) == gone
    assert deleted.remove_due(DUE - 1) == 0
    assert deleted.remove_due(DUE) == len(gone)
    assert names(made.partition, [".deleted"]) == []


def test_an_old_transaction_index_does_not_outlive_its_segment(tmp_path: Path) -> None:
    made = exchange(tmp_path)
    (made.partition / f"{made.bases[1]:020}.txnindex").write_bytes(b"\0" * 34)
    made.run()
    assert not (made.partition / f"{made.bases[1]:020}.txnindex").exists()


def test_several_new_segments_come_in_descending_order(tmp_path: Path) -> None:
    """This happens when a segment is split."""
    made = exchange(tmp_path)
    low, high = made.bases[1], made.bases[2]
    for kind in ("log", "index", "timeindex"):
        name = made.partition / f"{high:020}.{kind}.cleaned"
        shutil.copyfile(made.partition / f"{high:020}.{kind}", name)
    calls = RecordingCalls(tmp_path)
    with replaced(calls):
        directory = made.directory
        replace_files(directory, [low, high], [low, high], DeletedFiles(directory), DUE)
    renamed = [str(each) for each in calls.operations if "Rename" in str(each)]
    firsts = [
        next(n for n, line in enumerate(renamed) if f"{base:020}.log{suffix}'" in line)
        for suffix, base in ((".swap", high), (".swap", low), (".deleted", low), (".deleted", high))
    ]
    assert firsts == sorted(firsts)
    assert names(made.partition) == []


@pytest.mark.parametrize("which", ["some", "the last", "none"])
def test_a_power_cut_at_every_moment(tmp_path: Path, which: str) -> None:
    (tmp_path / "root").mkdir()
    made = exchange(tmp_path / "root", which)
    before, after = set(range(made.end)), made.must_have()
    calls = RecordingCalls(tmp_path / "root")
    with replaced(calls):
        made.run()
    seen: set[frozenset[int]] = set()
    for number, state in enumerate(crash_states(calls, samples=1)):
        root = tmp_path / f"{number}"
        root.mkdir()
        state.write_to(root)
        found = recovered(root / "t-0")
        assert found == sorted(set(found)), state.how
        assert after <= set(found) <= before, (state.done, state.how)
        # An empty new segment covers no old ones, so some of them may be left, each as a whole.
        lost = before - set(found)
        assert not lost or max(lost) == max(before - after) or which == "none"
        seen.add(frozenset(found))
        # Uncommitted files stay, but no longer count.
        assert not names(root / "t-0", [".swap"]) or names(root / "t-0", [".cleaned"])
        shutil.rmtree(root)
    assert {frozenset(before), frozenset(after)} <= seen


@pytest.mark.parametrize("which", KEPT)
def test_a_reader_at_every_moment(tmp_path: Path, which: str) -> None:
    made = exchange(tmp_path, which)
    log = open_log(made.partition)
    seen = []

    class Reading(RecordingCalls):
        def rename(self, old: str, new: str, directory: int) -> None:
            super().rename(old, new, directory)
            for partition in (log, open_log(made.partition)):
                found = [each.offset for each in read(partition.view())]
                assert found == sorted(set(found))
                assert made.must_have() <= set(found)
                seen.append(len(found))

    with replaced(Reading(tmp_path)):
        made.run()
    assert seen[0] == made.end
    assert seen[-1] == len(made.must_have())


def failures(number: int, kinds: Sequence[str] = ()) -> Iterator[FailingCalls]:
    """Yields calls of which the first fails, then the second, and so on."""
    for at in itertools.count():
        calls = FailingCalls(at, number, kinds)
        yield calls
        if not calls.failed:
            return


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_every_call_failing(tmp_path: Path, number: int) -> None:
    outcomes = []
    for calls in failures(number):
        root = tmp_path / f"{calls.at}"
        made = exchange(root)
        before = {name: data for name, data in files(made.partition).items() if "cle" not in name}
        try:
            with replaced(calls):
                made.run()
            outcomes.append("done")
        except LogDirOffline:
            outcomes.append("offline")
            assert recovered(made.partition) in (list(range(120)), sorted(made.must_have()))
        except OSError:
            outcomes.append("refused")
            if calls.failed[0].startswith("fsync"):
                assert recovered(made.partition) in (list(range(120)), sorted(made.must_have()))
            else:
                assert files(made.partition) == before
    assert set(outcomes) == {"refused", "offline", "done"}
    assert outcomes.index("offline") > outcomes.index("refused")


def test_what_cannot_be_taken_back_is_no_plain_error(tmp_path: Path) -> None:
    made = exchange(tmp_path)
    calls = FailingCalls(1, errno.EIO, ("rename", "unlink"), lasting=True)
    with replaced(calls), pytest.raises(LogDirOffline, match="cannot be reverted"):
        made.run()
    assert recovered(made.partition) == list(range(120))


def test_a_cleaned_segment_without_its_index_is_not_taken(tmp_path: Path) -> None:
    made = exchange(tmp_path)
    os.unlink(made.partition / f"{made.bases[1]:020}.index.cleaned")
    before = {name: data for name, data in files(made.partition).items() if "cle" not in name}
    with pytest.raises(FileNotFoundError):
        made.run()
    assert files(made.partition) == before


@pytest.mark.parametrize("count", [0, 2, 3])
def test_discarding_stopped_in_the_middle(tmp_path: Path, count: int) -> None:
    """The first `count` files already have the `.swap` suffix. With all of them the new segment
    counts, else the old one."""
    (tmp_path / "root").mkdir()
    made = exchange(tmp_path / "root")
    base = made.bases[1]
    for name in [f"{base:020}.{kind}" for kind in ("log", "index", "timeindex")][:count]:
        os.rename(made.partition / f"{name}.cleaned", made.partition / f"{name}.swap")
    calls = RecordingCalls(tmp_path / "root")
    with replaced(calls):
        discard_cleaned(made.directory, [base])
    assert names(made.partition) == []
    for number, state in enumerate(crash_states(calls)):
        root = tmp_path / f"{number}"
        root.mkdir()
        state.write_to(root)
        found = recovered(root / "t-0")
        assert found == list(range(120)) or (count == 3 and found == sorted(made.must_have()))
