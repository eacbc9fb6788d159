"""The nodes of small files: status, configs, the log, the control file, and scratch files."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ..monitoring.recent_log import LogHandle, RecentLog
from ..node import FILE_MODE, AttributeChanges, Attributes, File, FixedFile, stream_attributes
from ..vfs import render
from ..vfs.contents import Contents
from ..vfs.handles import BytesHandle, Handle
from ..vfs.timeouts import BRIEFLY, NOT_AT_ALL
from ..vfs.write_handle import WriteHandle

if TYPE_CHECKING:  # a read-only mount does not load the code that writes
    from ..control.conversation import Control, Row
    from ..writes.config_file import ConfigFile, ConfigFileHandle
    from ..writes.scratch import ScratchFile, ScratchFiles

_CONTROL_MODE: Final = stat.S_IFREG | 0o600


class ComputedFile(File):
    """A file with the result of `compute`. A listing does not compute it and so has no size."""

    is_fixed = False

    def __init__(
        self,
        contents: Contents[FixedFile],
        inode: int,
        mtime_ns: int,
        compute: Callable[[], bytes],
    ) -> None:
        """`inode`: the inode number in a listing."""
        self.inode = inode
        self._contents = contents
        self._mtime_ns = mtime_ns
        self._compute = compute

    def attributes(self) -> Attributes:
        return stream_attributes(self.inode, self._mtime_ns, entry_timeout=NOT_AT_ALL)

    def fixed(self) -> Document:
        data = self._compute()

        def make(inode: int) -> Document:
            return Document(inode, self._mtime_ns, data)

        found = self._contents.file((self.inode, self._mtime_ns, data), make)
        assert isinstance(found, Document)
        return found

    def open(self, *, waits: bool = True) -> Handle:
        return self.fixed().open()


class Document(FixedFile):
    """The content of a `ComputedFile` when its name was looked up."""

    def __init__(self, inode: int, mtime_ns: int, data: bytes) -> None:
        self.inode = inode
        self.memory = 1024 + 2 * len(data)
        self._mtime_ns = mtime_ns
        self._data = data

    def attributes(self) -> Attributes:
        size = len(self._data)
        return Attributes(self.inode, FILE_MODE, size, self._mtime_ns, NOT_AT_ALL, BRIEFLY)

    def check(self) -> None:
        """Does nothing: it shows a past state, so it cannot become stale."""

    def open(self, *, waits: bool = True) -> Handle:
        return BytesHandle(self._data)


class DescribedDocument(Document):
    """A document with extended attributes, which may take long to compute."""

    def __init__(
        self, inode: int, mtime_ns: int, data: bytes, xattrs: Callable[[], Mapping[str, bytes]]
    ) -> None:
        super().__init__(inode, mtime_ns, data)
        self._compute_xattrs = xattrs

    @property
    def xattrs_may_block(self) -> bool:
        return True

    def xattrs(self) -> Mapping[str, bytes]:
        return self._compute_xattrs()


class RecentLogFile(File):
    """`.kafkafs/log`: the daemon's latest messages. Its size is never cached, so that `tail` finds
    its end."""

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


class ControlFile(File):
    """`.kafkafs/control`. Each open for writing begins a conversation. Opened for reading only, it
    lists the verbs."""

    def __init__(self, inode: int, mtime_ns: int, control: Control) -> None:
        self.inode = inode
        self._mtime_ns = mtime_ns
        self._control = control

    def attributes(self) -> Attributes:
        return Attributes(self.inode, _CONTROL_MODE, 0, self._mtime_ns, NOT_AT_ALL, NOT_AT_ALL)

    def open(self, *, waits: bool = True) -> Handle:
        from ..control.conversation import Work

        rows: list[Row] = []
        help_ = self._control.prepare(self._control, b"help")
        assert isinstance(help_, Work)
        help_.run(rows.append)
        return BytesHandle(b"".join(map(render.json_line, rows)), direct_io=True)

    def open_writing(self, flags: int) -> WriteHandle:
        return self._control.open()

    def truncate(self, size: int) -> None:
        """Does nothing: `>` calls it, but there is nothing to truncate."""


class ConfigFileNode(File):
    """`<topic>/config.properties` on a writable mount. Its size is exact, as needed by editors and
    by programs that append. The constructor may block on the disk."""

    def __init__(self, inode: int, file: ConfigFile) -> None:
        self.inode = inode
        self._file = file
        self._size = len(file.content())

    def attributes(self) -> Attributes:
        kept = self._file.attributes
        mode = stat.S_IFREG | kept.mode
        return Attributes(self.inode, mode, self._size, kept.mtime_ns, NOT_AT_ALL, NOT_AT_ALL)

    def open(self, *, waits: bool = True) -> Handle:
        return BytesHandle(self._file.content(), direct_io=True)

    def open_writing(self, flags: int) -> ConfigFileHandle:
        from ..writes.config_file import ConfigFileHandle

        return ConfigFileHandle(
            self._file, empty=bool(flags & os.O_TRUNC), appends=bool(flags & os.O_APPEND)
        )

    def take_mode(self, mode: int) -> None:
        self._file.attributes.mode = mode & 0o777

    def truncate(self, size: int) -> None:
        self._file.resize(size)

    def change_attributes(self, changes: AttributeChanges) -> None:
        self._file.attributes.change(changes)


class ScratchNode(File):
    """An in-memory file that a program creates beside `config.properties` while it changes it."""

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
        return self._handle(appends=False)

    def open_writing(self, flags: int) -> WriteHandle:
        if flags & os.O_TRUNC:
            self.truncate(0)
        return self._handle(appends=bool(flags & os.O_APPEND))

    def _handle(self, *, appends: bool) -> WriteHandle:
        from ..writes.scratch import ScratchHandle

        return ScratchHandle(self._files, self._file, appends=appends)

    def take_mode(self, mode: int) -> None:
        self._file.attributes.mode = mode & 0o777

    def truncate(self, size: int) -> None:
        self._files.truncate(self._file, size)

    def change_attributes(self, changes: AttributeChanges) -> None:
        self._file.attributes.change(changes)
