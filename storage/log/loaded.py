"""A partition as loading it has left it, for whoever goes on with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .epochs import LeaderEpochs
from .producers import Producers


class LoadedSegment(Protocol):
    """A segment that is there: bytes in its `.log`."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...


class LoadedLog(Protocol):
    """See `recovery.RecoveryPlan`; without segments it is a new partition."""

    @property
    def segments(self) -> Sequence[LoadedSegment]: ...
    @property
    def snapshots(self) -> Sequence[int]: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def recovery_point(self) -> int: ...
    @property
    def epochs(self) -> LeaderEpochs: ...
    @property
    def latest_epoch(self) -> int: ...
    @property
    def producers(self) -> Producers: ...
