"""Long-running work that must be done before a node can answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pending:
    """Work to be done. Callers that need the same work share its `key`. `is_done` returns whether
    there is nothing left to do, and may read from disk; `work` does it. Both run in threads."""

    key: Hashable
    is_done: Callable[[], bool]
    work: Callable[[], object]
