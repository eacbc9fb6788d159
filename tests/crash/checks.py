"""What is wrong with directories on the disk."""

from __future__ import annotations

from kafkafs.storage.writable_engine import WritableEngine


def complaints(engine: WritableEngine) -> list[str]:
    """What the engine itself complains of; files apart that are not yet made."""
    return [problem for problem in engine.problems if not problem.endswith("checkpoint: missing")]


def refuse_complaints(engine: WritableEngine) -> None:
    """AssertionError with all of them."""
    found = complaints(engine)
    assert not found, "\n".join(found)
