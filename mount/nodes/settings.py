"""`<topic>/config.properties` on a writable mount: the topic's configs."""

from __future__ import annotations

import os
import stat

from ..node import AttributeChanges, Attributes, File
from ..vfs.handles import BytesHandle, Handle
from ..vfs.lifetimes import NOT_AT_ALL
from ..writes.topic_settings import SettingsHandle, TopicSettingsFile


class SettingsNode(File):
    """The file of a topic's configs. Its size is exact, as needed by editors and by programs that
    append. The constructor may block on the disk."""

    def __init__(self, inode: int, file: TopicSettingsFile) -> None:
        self.inode = inode
        self._file = file
        self._size = len(file.content())

    def attributes(self) -> Attributes:
        kept = self._file.attributes
        mode = stat.S_IFREG | kept.mode
        return Attributes(self.inode, mode, self._size, kept.mtime_ns, NOT_AT_ALL, NOT_AT_ALL)

    def open(self, *, waits: bool = True) -> Handle:
        return BytesHandle(self._file.content(), direct_io=True)

    def open_writing(self, flags: int) -> SettingsHandle:
        return SettingsHandle(
            self._file, empty=bool(flags & os.O_TRUNC), appends=bool(flags & os.O_APPEND)
        )

    def take_mode(self, mode: int) -> None:
        self._file.attributes.mode = mode & 0o777

    def truncate(self, size: int) -> None:
        self._file.resize(size)

    def change_attributes(self, changes: AttributeChanges) -> None:
        self._file.attributes.change(changes)
