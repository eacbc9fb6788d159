"""Helpers for tests of the cleaner: logs to clean, and a stand-in for a log's writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafkafs.storage.cleaner.cleaned import CleanedSegment
from kafkafs.storage.cleaner.plan import LogToClean, SegmentToClean
from kafkafs.storage.cleaner.record_filter import FilterResult
from kafkafs.storage.config.kafka import TopicConfig
from kafkafs.storage.format.records.rewrite import rewrite
from kafkafs.storage.log.read.view import View
from tests.writing import NOW

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


CONFIG = TopicConfig(cleanup_policy=("compact",), delete_retention_ms=1000)


def nothing() -> None:
    """Does not end the pass."""


def log_to_clean(
    view: View,
    first_dirty: int,
    first_uncleanable: int,
    config: TopicConfig = CONFIG,
    *,
    now_ms: int = NOW,
    check: Callable[[], None] = nothing,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> LogToClean:
    """Returns a log without active producers."""
    return LogToClean(
        view, config, first_dirty, first_uncleanable, now_ms, lambda: (), check, on_progress
    )


@dataclass
class Rewritten:
    """A sink that concatenates the bytes of everything retained."""

    data: bytearray = field(default_factory=bytearray)

    def begin(self, segments: Sequence[SegmentToClean]) -> None:
        pass

    def put(self, filtered: FilterResult) -> int:
        kept = rewrite(
            filtered.data,
            filtered.base,
            filtered.columns,
            filtered.keep,
            filtered.actions,
            filtered.horizons,
        )
        self.data += kept.data
        return len(kept.data)

    def end(self) -> None:
        pass

    def discard(self) -> None:
        self.data.clear()


class Exchange:
    """A callable that swaps cleaned segments in for old ones, in a partition that nothing else has
    open."""

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
