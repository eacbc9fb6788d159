"""Collects what is wrong with log directories on disk."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.verifier import Verifier
from tests.crash.model import LOST, Model
from tests.faults import CrashState

_HOLE = re.compile(r"the offsets (\d+) to (\d+) before it are in no batch")


@contextmanager
def left_by(state: CrashState, path: Path) -> Iterator[None]:
    """Writes what a power cut left to the new directory `path` for the block. It stays there, and
    the error names it, if the block fails."""
    path.mkdir()
    state.write_to(path)
    try:
        yield
    except BaseException as error:
        error.add_note(f"after {state.done} operations, {state.how}; left in {path}")
        raise
    shutil.rmtree(path)


def complaints(engine: LogManager, model: Model | None = None) -> list[str]:
    """Returns every violation that `Verifier` finds and every problem that the engine reports,
    except missing checkpoints.

    Gaps of records that `model` knows as lost or deleted are no violation: a power cut may take the
    unsynced end of one segment and leave the next segment.
    """
    verifier = Verifier(engine)
    found = list(verifier.directories())
    for partition in verifier.partitions():
        found += verifier.partition(partition)
    wrong = [str(one) for one in found if not _is_lost(one.file, one.what, model or Model())]
    told = [problem for problem in engine.problems if not problem.endswith("checkpoint: missing")]
    return wrong + told


def refuse_complaints(engine: LogManager, model: Model | None = None) -> None:
    """Raises AssertionError, listing all complaints, if there are any."""
    found = complaints(engine, model)
    assert not found, "\n".join(found)


def _is_lost(file: str, what: str, model: Model) -> bool:
    hole = _HOLE.fullmatch(what)
    partition = model.partitions.get(Path(file).parent.name)
    if hole is None or partition is None:
        return False
    first, last = map(int, hole.groups())
    those = range(max(first, partition.start_most), last + 1)
    return all(partition.known.get(offset) is LOST for offset in those)
