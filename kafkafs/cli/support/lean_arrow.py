"""Keeps pyarrow from importing pandas, which no verb needs, and which takes longer than most verbs
run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Missing(MetaPathFinder):
    """Finds that a package is not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == self._name:
            raise ModuleNotFoundError(f"{fullname} is not needed here", name=fullname)
        return None


def import_without_pandas() -> None:
    """Imports pyarrow. With the first value that it converts, it looks for pandas, whose values it
    converts, too, and remembers what it finds: here that there is none."""
    finder = _Missing("pandas")
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)
