"""What `backup` is asked for, and its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...clock import time_text
from ...log_dirs.engine import Engine
from ...log_dirs.selection import EVERYTHING, Selection
from ..request import PartitionFailed


@dataclass(frozen=True, slots=True)
class Backup:
    """Makes a point in time in the repository at `output`, an absolute path or a URL: of the
    selected topics and partitions, all internal ones and the cluster's metadata.

    `bandwidth`: the most bytes per second to read, None for no limit. `reread`: also compares the
    bytes of files that look unchanged. `dry_run`: only says what would be copied.
    """

    output: str
    selection: Selection = EVERYTHING
    bandwidth: int | None = None
    reread: bool = False
    dry_run: bool = False

    @property
    def writes(self) -> bool:
        """False: it does not change the log directories that it reads."""
        return False

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic or UnknownPartition."""
        if self.selection:
            self.selection.partitions(engine.topics())
        return ()


@dataclass(frozen=True, slots=True)
class BackedUpPartition:
    """A partition in the new point: offsets [`start_offset`, `end_offset`) of the log in a log
    directory. `size`: bytes of all its files; `new_bytes`: of these, what had to be stored."""

    log_dir: str
    topic: str
    partition: int
    segments: int
    start_offset: int
    end_offset: int
    size: int
    new_bytes: int

    def as_json(self) -> dict[str, Any]:
        return {
            "logDir": self.log_dir,
            "topic": self.topic,
            "partition": self.partition,
            "segments": self.segments,
            "startOffset": self.start_offset,
            "endOffset": self.end_offset,
            "bytes": self.size,
            "newBytes": self.new_bytes,
        }


@dataclass(frozen=True, slots=True)
class FinishedPoint:
    """The new point in time, visible unless it was a dry run. `stored`: the bytes that the run
    added to the repository, without the manifest; `left_out`: how many files and directories are
    not in it, as the manifest says."""

    manifest: str
    time_ms: int
    partitions: int
    files: int
    size: int
    stored: int
    left_out: int

    def as_json(self) -> dict[str, Any]:
        return {
            "manifest": self.manifest,
            "time": time_text(self.time_ms),
            "partitions": self.partitions,
            "files": self.files,
            "bytes": self.size,
            "storedBytes": self.stored,
            "leftOut": self.left_out,
        }


BackupRow = BackedUpPartition | FinishedPoint
