"""`.kafkafs/log`: the daemon's latest messages."""

from __future__ import annotations

from ..monitoring.recent_log import LogHandle, RecentLog
from ..node import FILE_MODE, Attributes, File
from ..vfs.handles import Handle
from ..vfs.lifetimes import BRIEFLY, NOT_AT_ALL


class RecentLogFile(File):
    """A growing file. Its size is never cached, so that `tail` finds its end."""

    def __init__(self, inode: int, recent: RecentLog) -> None:
        self.inode = inode
        self._recent = recent

    def attributes(self) -> Attributes:
        recent = self._recent
        return Attributes(
            self.inode, FILE_MODE, recent.size, recent.changed_ns, BRIEFLY, NOT_AT_ALL
        )

    def open(self, *, waits: bool = True) -> Handle:
        return LogHandle(self._recent)
