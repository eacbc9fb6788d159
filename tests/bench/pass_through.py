"""A pyfuse3 file system that passes everything through to a directory: the peer for changes made
through a mount of kafkafs.

    python -m tests.bench.pass_through SOURCE MOUNTPOINT

Each request of the kernel is one call of `os`, in the handler itself. As in pyfuse3's own example
(`passthroughfs.py`), the kernel caches neither names nor attributes.
"""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pyfuse3
import trio


class PassThrough(pyfuse3.Operations):
    """The handlers. Inode numbers are the source's; their paths are remembered."""

    def __init__(self, source: Path) -> None:
        super().__init__()
        self._paths: dict[int, bytes] = {pyfuse3.ROOT_INODE: os.fsencode(source)}

    # -- names ----------------------------------------------------------------------------------

    def _path(self, parent: int, name: bytes) -> bytes:
        return self._paths[parent] + b"/" + name

    def _known(self, path: bytes) -> pyfuse3.EntryAttributes:
        entry = _entry(os.lstat(path))
        self._paths[entry.st_ino] = path
        return entry

    async def lookup(
        self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        try:
            return self._known(self._path(parent_inode, name))
        except OSError as error:
            _refuse(error)

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        """Keeps the paths: their memory is not measured."""

    async def unlink(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        try:
            os.unlink(self._path(parent_inode, name))
        except OSError as error:
            _refuse(error)

    async def opendir(self, inode: int, ctx: pyfuse3.RequestContext) -> int:
        return inode

    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        names = sorted(os.listdir(self._paths[fh]))
        for at, name in enumerate(names[start_id:], start_id + 1):
            entry = self._known(self._path(fh, name))
            if not pyfuse3.readdir_reply(token, pyfuse3.FileNameT(name), entry, at):
                return

    # -- attributes -----------------------------------------------------------------------------

    async def getattr(
        self, inode: int, ctx: pyfuse3.RequestContext | None = None
    ) -> pyfuse3.EntryAttributes:
        try:
            entry = _entry(os.lstat(self._paths[inode]))
        except OSError as error:
            _refuse(error)
        entry.st_ino = pyfuse3.InodeT(inode)
        return entry

    async def setattr(
        self,
        inode: int,
        attr: pyfuse3.EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: int | None,
        ctx: pyfuse3.RequestContext,
    ) -> pyfuse3.EntryAttributes:
        try:
            if fields.update_size:
                os.truncate(self._paths[inode] if fh is None else fh, attr.st_size)
            if fields.update_mode:
                os.chmod(self._paths[inode], attr.st_mode & 0o7777)
        except OSError as error:
            _refuse(error)
        return await self.getattr(inode)

    # -- files ----------------------------------------------------------------------------------

    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        try:
            return _file(os.open(self._paths[inode], flags))
        except OSError as error:
            _refuse(error)

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: pyfuse3.RequestContext
    ) -> tuple[pyfuse3.FileInfo, pyfuse3.EntryAttributes]:
        path = self._path(parent_inode, name)
        try:
            return _file(os.open(path, flags | os.O_CREAT | os.O_TRUNC, mode)), self._known(path)
        except OSError as error:
            _refuse(error)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        return os.pread(fh, size, off)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        try:
            return os.pwrite(fh, buf, off)
        except OSError as error:
            _refuse(error)

    async def flush(self, fh: int) -> None:
        """Does what close(2) does on one of several descriptors."""
        os.close(os.dup(fh))

    async def fsync(self, fh: int, datasync: bool) -> None:
        os.fsync(fh)

    async def release(self, fh: int) -> None:
        os.close(fh)


def _refuse(error: OSError) -> NoReturn:
    raise pyfuse3.FUSEError(error.errno or errno.EIO) from None


def _file(descriptor: int) -> pyfuse3.FileInfo:
    return pyfuse3.FileInfo(fh=pyfuse3.FileHandleT(descriptor))


def _entry(status: os.stat_result) -> pyfuse3.EntryAttributes:
    entry: Any = pyfuse3.EntryAttributes()
    for name in ("st_ino", "st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_mtime_ns"):
        setattr(entry, name, getattr(status, name))
    entry.entry_timeout = entry.attr_timeout = 0
    found: pyfuse3.EntryAttributes = entry
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("mountpoint", type=Path)
    options = parser.parse_args()
    operations = PassThrough(options.source.absolute())
    kernel = {*pyfuse3.default_options, "fsname=pass-through"}
    pyfuse3.init(operations, os.fspath(options.mountpoint), kernel)
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close()


if __name__ == "__main__":
    main()
