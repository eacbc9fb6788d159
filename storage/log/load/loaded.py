"""The interface of a loaded partition, as its writer and other users see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...format.files.names import FileKind
from ..state.epochs import LeaderEpochFileCache
from ..state.producers import ProducerStateManager


class LoadedSegment(Protocol):
    """A segment that exists; `size` is the length of its `.log` in bytes."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...


@dataclass(frozen=True, slots=True)
class FoundDeleted:
    """A deleted segment that still exists: the size of its `.log` in bytes, and its files."""

    base_offset: int
    size: int
    kinds: tuple[FileKind, ...]


class LoadedLogOffsets(Protocol):
    """The offsets of a loaded log, and its segments and state; see `log_loader.RecoveryPlan`. A new
    partition has no segments."""

    @property
    def segments(self) -> Sequence[LoadedSegment]: ...
    @property
    def snapshots(self) -> Sequence[int]: ...
    @property
    def finds_deleted(self) -> bool: ...
    @property
    def deleted(self) -> Sequence[FoundDeleted]: ...
    @property
    def deleted_epochs(self) -> LeaderEpochFileCache: ...
    @property
    def is_tiered(self) -> bool: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def recovery_point(self) -> int: ...
    @property
    def epochs(self) -> LeaderEpochFileCache: ...
    @property
    def latest_epoch(self) -> int: ...
    @property
    def producers(self) -> ProducerStateManager: ...
