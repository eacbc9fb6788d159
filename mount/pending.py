"""What must be done before a node can answer, and takes long."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pending:
    """Something to be done. Who needs the same has the same `key`. `is_done` looks whether there is
    anything to do, and may read from disk; `work` does it. Both are for threads."""

    key: Hashable
    is_done: Callable[[], bool]
    work: Callable[[], object]
