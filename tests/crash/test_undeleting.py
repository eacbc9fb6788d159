"""Restoring deleted records and topics, through power cuts and failing calls.

At every moment each partition holds a gapless tail of what was appended, with the right values, and
passes verification. Once an undelete has returned, the partitions start where requested.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import CannotUndelete, ConfigsNotRemoved, LogDirOffline, NotClosed
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log_manager import LogManager
from tests.building import BatchFields, build_batch
from tests.crash.checks import left_by, refuse_complaints
from tests.crash.moments import moments
from tests.crash.workload import NOW_MS
from tests.faults import CrashState, FailingCalls, RecordingCalls, crash_states
from tests.reading import read

COUNT = 14
#: The records of a transaction, and its end marker.
ABORTED = (3, 4, 5)
SETTINGS = {"internal.segment.bytes": "600", "retention.ms": "-1"}
ERRNOS = (errno.ENOSPC, errno.EIO, errno.EMFILE)

#: A step, and where each partition of "t" starts after it; None for anywhere.
Step = tuple[Callable[[LogManager], object], int | None]


def open_engine(root: Path, *, finds_deleted: bool = False) -> LogManager:
    return LogManager(str(root), clock=SetClock(NOW_MS), finds_deleted=finds_deleted)


def value(offset: int) -> bytes:
    return b"%03d" % offset + bytes(100)


def make(engine: LogManager) -> None:
    """Creates two partitions with durable records, some of them in an aborted transaction."""
    engine.create_topic("t", 2, SETTINGS)
    for partition in range(2):
        writer = engine.writer("t", partition)
        while (at := writer.end_offset) < COUNT:
            if at == 5:
                writer.end_transaction(7, 0, commit=False)
                continue
            fields = BatchFields()
            if at in (3, 4):
                fields = BatchFields(
                    producer_id=7, producer_epoch=0, base_sequence=at - 3, is_transactional=True
                )
            writer.append(build_batch([SimpleRecord(NOW_MS, b"k", value(at))], fields))
        writer.flush()
    engine.run("recovery-points")


def delete_records(offset: int) -> Callable[[LogManager], None]:
    def delete_records(engine: LogManager) -> None:
        for partition in range(2):
            engine.writer("t", partition).delete_records(offset)

    return delete_records


def delete(offset: int) -> Callable[[LogManager], None]:
    def delete(engine: LogManager) -> None:
        delete_records(offset)(engine)
        engine.run("retention")

    return delete


def undelete(offset: int | None) -> Callable[[LogManager], None]:
    """Returns a step that does nothing if it has been done already."""

    def undelete(engine: LogManager) -> None:
        for partition in range(2):
            with suppress(CannotUndelete):
                engine.undelete("t", partition, offset)
            writer = engine.writer("t", partition)
            assert writer.start_offset == (offset or 0), "the records were not restored"

    return undelete


def delete_topic(engine: LogManager) -> None:
    if "t" in engine.topics():
        engine.delete_topic("t")


def undelete_topic(engine: LogManager) -> None:
    if "t" not in engine.topics():
        engine.undelete("t")


STEPS: list[Step] = [
    (delete(3), None),  # at the start of a segment, before any checkpoint
    (lambda engine: engine.run("start-offsets"), 3),
    (delete(9), None),
    (undelete(5), 5),
    (lambda engine: engine.run("start-offsets"), 5),
    (undelete(None), 0),
    (delete(8), None),
    (lambda engine: engine.run("start-offsets"), 8),
    (delete_topic, None),
    (undelete_topic, 8),
    # In the end only the file names in the directory say what was checkpointed first.
    (delete(10), None),
    (lambda engine: engine.run("start-offsets"), 10),
    (delete_records(13), None),
    (lambda engine: engine.run("start-offsets"), 13),
    (lambda engine: engine.run("retention"), 13),
    (lambda engine: engine.run("start-offsets"), 13),
]
END = 13


def starts(engine: LogManager) -> dict[str, int]:
    """Returns the start offsets of the existing partitions by path. Raises AssertionError if one
    does not hold a gapless tail of what was appended, or if the topic's configs have changed."""
    found = {}
    for partition in engine.topics().get("t", []):
        view = engine.log("t", partition).view()
        records = read(view)
        offsets = [offset for offset in range(view.start_offset, COUNT) if offset not in ABORTED]
        assert [record.offset for record in records] == offsets
        assert [record.value for record in records] == [value(offset) for offset in offsets]
        found[f"t/{partition}"] = view.start_offset
    assert not found or engine.stored_configs("t") == SETTINGS
    return found


def both_at(start: int) -> dict[str, int]:
    return {"t/0": start, "t/1": start}


# -- power cuts -----------------------------------------------------------------------------------


def recorded(root: Path) -> RecordingCalls:
    with open_engine(root) as engine:
        make(engine)
    recording = RecordingCalls(root)
    with replaced(recording), open_engine(root) as engine:
        for step, start in STEPS:
            recording.mark(None)
            step(engine)
            recording.mark(start)
    return recording


def check_state(state: CrashState, path: Path, *, finds_deleted: bool) -> None:
    with left_by(state, path):
        with open_engine(path, finds_deleted=finds_deleted) as engine:
            found = starts(engine)
            refuse_complaints(engine)
            marks = cast("tuple[int | None, ...]", state.marks)
            if marks and marks[-1] is not None:
                assert found == both_at(marks[-1])
            deleted = {each.path: each for each in engine.deleted()}
            for each in deleted.values():
                engine.undelete("t", None if each.path == "t" else each.partition)
            again = starts(engine)
            for one, start in found.items():
                assert again[one] == (deleted[one].start_offset if one in deleted else start)
            refuse_complaints(engine)
        with open_engine(path) as engine:
            assert starts(engine) == again
            refuse_complaints(engine)


def check_states(path: Path, every: int, *, finds_deleted: bool) -> int:
    (path / "root").mkdir()
    recording = recorded(path / "root")
    prefixes = moments(len(recording.operations), every)
    checked = 0
    for state in crash_states(recording, prefixes=prefixes, samples=1):
        check_state(state, path / f"state-{checked}", finds_deleted=finds_deleted)
        checked += 1
    return checked


@pytest.mark.parametrize("finds_deleted", [False, True])
def test_a_power_cut_now_and_then(memory_path: Path, finds_deleted: bool) -> None:
    assert check_states(memory_path, 31, finds_deleted=finds_deleted) > 10


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("finds_deleted", [False, True])
def test_power_cuts_at_many_moments(memory_path: Path, finds_deleted: bool) -> None:
    assert check_states(memory_path, 9, finds_deleted=finds_deleted) > 60


# -- failing calls --------------------------------------------------------------------------------


def run(root: Path, calls: FailingCalls) -> tuple[int, int]:
    """Takes all steps, repeating each that fails, with a new engine if the directory went offline.
    Returns the number of failures of either kind."""
    refused = offline = 0
    engine = open_engine(root)
    for step, start in STEPS:
        with replaced(calls):
            try:
                step(engine)
            except LogDirOffline:
                offline += 1
            except (OSError, ConfigsNotRemoved):
                refused += 1
                assert not engine.problems
        if engine.problems:
            with suppress(LogDirOffline, NotClosed):
                engine.close()
            # What was deleted in it can no longer be restored.
            engine = open_engine(root)
            starts(engine)
            refuse_complaints(engine)
            engine.close()
            return refused, offline
        starts(engine)
        if calls.failed:
            step(engine)
        refuse_complaints(engine)
        if start is not None:
            assert starts(engine) == both_at(start)
    engine.close()
    with open_engine(root) as engine:
        assert starts(engine) == both_at(END)
        refuse_complaints(engine)
    return refused, offline


def check_failing(path: Path, every: int) -> tuple[int, int]:
    (path / "made").mkdir()
    with open_engine(path / "made") as engine:
        make(engine)
    shutil.copytree(path / "made", path / "whole")
    counting = FailingCalls(-1, errno.EIO)
    assert run(path / "whole", counting) == (0, 0)
    refused = offline = 0
    for number in moments(len(counting.made) - 1, every):
        root = path / str(number)
        shutil.copytree(path / "made", root)
        calls = FailingCalls(number, ERRNOS[number // every % 3])
        try:
            one, other = run(root, calls)
        except BaseException as error:
            error.add_note(f"call {number} failed: {calls.failed}; left in {root}")
            raise
        refused, offline = refused + one, offline + other
        shutil.rmtree(root)
    return refused, offline


def test_calls_that_fail_now_and_then(memory_path: Path) -> None:
    refused, offline = check_failing(memory_path, every=61)
    assert refused > 0
    assert offline > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_calls_fail_once(memory_path: Path) -> None:
    refused, offline = check_failing(memory_path, every=11)
    assert refused > 3
    assert offline > 3
