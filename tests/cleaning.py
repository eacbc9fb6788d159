"""For tests of the cleaner: what takes the place of a log's writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kafkafs.storage.cleaner.cleaned import CleanedSegment

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


class Exchange:
    """Puts cleaned segments in the place of old ones, where nobody else has the partition open."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, cleaned: CleanedSegment, old: Sequence[int]) -> None:
        for base in old:
            for suffix in SUFFIXES:
                (self._directory / f"{base:020}{suffix}").unlink(missing_ok=True)
        for suffix in SUFFIXES:
            made = self._directory / f"{cleaned.base_offset:020}{suffix}.cleaned"
            if made.exists():
                made.rename(made.with_suffix(""))
