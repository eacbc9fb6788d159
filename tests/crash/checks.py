"""What is wrong with directories on the disk."""

from __future__ import annotations

import re
from pathlib import Path

from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.verify import Verifier
from tests.crash.model import LOST, Model

_HOLE = re.compile(r"the offsets (\d+) to (\d+) before it are in no batch")


def complaints(engine: LogManager, model: Model | None = None) -> list[str]:
    """Every rule that is broken, and what the engine itself complains of; files apart that are not
    yet made. So is a hole of records that `model` knows as lost or deleted: a power cut took the
    end of one segment, which was not durable, and not the next segment."""
    verifier = Verifier(engine)
    found = list(verifier.directories())
    for partition in verifier.partitions():
        found += verifier.partition(partition)
    wrong = [str(one) for one in found if not _is_lost(one.file, one.what, model or Model())]
    told = [problem for problem in engine.problems if not problem.endswith("checkpoint: missing")]
    return wrong + told


def refuse_complaints(engine: LogManager, model: Model | None = None) -> None:
    """AssertionError with all of them."""
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
