"""In-memory files that programs create beside `config.properties` while they change it."""

from __future__ import annotations

import os
import stat

from ..node import AttributeChanges, Attributes, File
from ..vfs.handles import Handle
from ..vfs.lifetimes import NOT_AT_ALL
from ..vfs.write_handle import WriteHandle
from ..writes.scratch import ScratchFile, ScratchFiles, ScratchHandle


class ScratchNode(File):
    def __init__(self, files: ScratchFiles, file: ScratchFile) -> None:
        self._files = files
        self._file = file
        self.inode = file.inode

    def attributes(self) -> Attributes:
        kept = self._file.attributes
        return Attributes(
            self.inode,
            stat.S_IFREG | kept.mode,
            len(self._file.buffer),
            kept.mtime_ns,
            NOT_AT_ALL,
            NOT_AT_ALL,
        )

    def open(self, *, waits: bool = True) -> Handle:
        return ScratchHandle(self._files, self._file)

    def open_writing(self, flags: int) -> WriteHandle:
        if flags & os.O_TRUNC:
            self.truncate(0)
        return ScratchHandle(self._files, self._file, appends=bool(flags & os.O_APPEND))

    def take_mode(self, mode: int) -> None:
        self._file.attributes.mode = mode & 0o777

    def truncate(self, size: int) -> None:
        self._files.truncate(self._file, size)

    def change_attributes(self, changes: AttributeChanges) -> None:
        self._file.attributes.change(changes)
