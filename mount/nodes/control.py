"""`.kafkafs/control`: takes control verbs and returns their answers."""

from __future__ import annotations

import stat

from ..control.conversation import Control, Row, Work
from ..node import Attributes, File
from ..vfs import render
from ..vfs.handles import BytesHandle, Handle
from ..vfs.lifetimes import NOT_AT_ALL
from ..vfs.write_handle import WriteHandle

MODE = stat.S_IFREG | 0o600


class ControlFile(File):
    """Each open for writing begins a conversation. Opened for reading only, it lists the verbs."""

    def __init__(self, inode: int, mtime_ns: int, control: Control) -> None:
        self.inode = inode
        self._mtime_ns = mtime_ns
        self._control = control

    def attributes(self) -> Attributes:
        return Attributes(self.inode, MODE, 0, self._mtime_ns, NOT_AT_ALL, NOT_AT_ALL)

    def open(self, *, waits: bool = True) -> Handle:
        rows: list[Row] = []
        help_ = self._control.prepare(self._control, b"help")
        assert isinstance(help_, Work)
        help_.run(rows.append)
        return BytesHandle(b"".join(map(render.json_line, rows)), direct_io=True)

    def open_writing(self, flags: int) -> WriteHandle:
        return self._control.open()

    def truncate(self, size: int) -> None:
        """Does nothing: `>` calls it, but there is nothing to truncate."""
