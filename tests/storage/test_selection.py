"""Topics and partitions by name."""

from __future__ import annotations

import pytest

from kafkafs.storage.errors import UnknownPartition, UnknownTopic
from kafkafs.storage.log_dirs.selection import EVERYTHING, Selection

THERE = {"a": [0, 1], "b": [0], "force": [3], "__cluster_metadata": [0]}


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["a"], [("a", None)]),
        (["a/"], [("a", None)]),
        (["a/1"], [("a", 1)]),
        (["a/0,b", "force/3"], [("a", 0), ("b", None), ("force", 3)]),
        ([], []),
    ],
)
def test_parsing(texts: list[str], names: list[tuple[str, int | None]]) -> None:
    found = Selection.of(*texts)
    assert list(found.names) == names
    assert Selection.of(*str(found).split()) == found
    assert bool(found) == bool(names)


@pytest.mark.parametrize(
    "text", ["", "/", "/1", "a/x", "a/0/0", "a/-1", "a/\u0661", "a/12345678901", "a,,b"]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not TOPIC/PARTITION"):
        Selection.of(text)


def test_partitions() -> None:
    """In the order of the names, each once, and without the quorum's own log."""
    assert EVERYTHING.partitions(THERE) == [("a", 0), ("a", 1), ("b", 0), ("force", 3)]
    assert Selection.of("b,a/1,a,b").partitions(THERE) == [("b", 0), ("a", 1), ("a", 0)]
    with pytest.raises(UnknownTopic):
        Selection.of("__cluster_metadata").partitions(THERE)
    with pytest.raises(UnknownPartition):
        Selection.of("a/2").partitions(THERE)


def test_what_is_included() -> None:
    selection = Selection.of("a/1,b")
    assert selection.includes("a", 1)
    assert not selection.includes("a", -1)  # the whole topic
    assert selection.includes("b", -1)
    assert selection.has_topic("a")
    assert not selection.has_topic("c")
    assert EVERYTHING.includes("c", 5)
