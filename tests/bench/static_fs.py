"""A pyfuse3 file system that does no work: the peer for reading a mount of kafkafs.

    python -m tests.bench.static_fs MOUNTPOINT [--size BYTES] [--files N] [--value BYTES]

Its root has `direct` and `cached`, one file of SIZE bytes each, without and with the page cache,
and `files`, a directory of N files of VALUE bytes each, named by number. Every answer is computed
from the inode number or taken from one prepared buffer, in the handler itself.
"""

from __future__ import annotations

import argparse
import errno
import os
import stat
from pathlib import Path
from typing import cast

import pyfuse3
import trio

#: The most that the kernel requests in one read.
READ_BYTES = 1 << 20
_TIMEOUT = 3600.0
_ROOT, _DIRECT, _CACHED, _FILES, _FIRST = 1, 2, 3, 4, 1 << 20
_IN_ROOT = {b"direct": _DIRECT, b"cached": _CACHED, b"files": _FILES}


class StaticFiles(pyfuse3.Operations):
    """The handlers. Inode numbers from _FIRST on are the files of `files`."""

    def __init__(self, size: int, files: int, value: int) -> None:
        super().__init__()
        self._size = size
        self._files = files
        self._value = b"v" * value
        self._bytes = memoryview(bytes(range(256)) * (2 * READ_BYTES // 256))
        self._small_info = pyfuse3.FileInfo(fh=_FIRST, direct_io=False, keep_cache=True)
        self._small = _entry(_FIRST, stat.S_IFREG | 0o444, value)

    async def lookup(
        self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        if parent_inode == _FILES and name.isdigit() and int(name) < self._files:
            return self._attributes(_FIRST + int(name))
        if parent_inode == _ROOT and name in _IN_ROOT:
            return self._attributes(_IN_ROOT[name])
        raise pyfuse3.FUSEError(errno.ENOENT)

    async def getattr(
        self, inode: int, ctx: pyfuse3.RequestContext | None = None
    ) -> pyfuse3.EntryAttributes:
        return self._attributes(inode)

    def _attributes(self, inode: int) -> pyfuse3.EntryAttributes:
        if inode >= _FIRST:
            # One object for all files: pyfuse3 has copied it before the handler is called again.
            self._small.st_ino = inode
            return self._small
        if inode in (_ROOT, _FILES):
            return _entry(inode, stat.S_IFDIR | 0o555, 0)
        return _entry(inode, stat.S_IFREG | 0o444, self._size)

    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        if inode >= _FIRST:
            return self._small_info
        return pyfuse3.FileInfo(fh=inode, direct_io=inode == _DIRECT, keep_cache=False)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        if fh == _FIRST:
            return self._value[off : off + size]
        begin = off % READ_BYTES
        count = max(0, min(size, self._size - off))
        # pyfuse3 accepts any buffer, and slicing a memoryview does not copy.
        return cast(bytes, self._bytes[begin : begin + count])

    async def opendir(self, inode: int, ctx: pyfuse3.RequestContext) -> int:
        return inode

    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        if fh != _FILES:
            return
        for number in range(start_id, self._files):
            entry = self._attributes(_FIRST + number)
            if not pyfuse3.readdir_reply(token, b"%d" % number, entry, number + 1):
                return


def _entry(inode: int, mode: int, size: int) -> pyfuse3.EntryAttributes:
    entry = pyfuse3.EntryAttributes()
    entry.st_ino = inode
    entry.st_mode = mode
    entry.st_size = size
    entry.st_blksize = READ_BYTES
    entry.entry_timeout = entry.attr_timeout = _TIMEOUT
    return entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mountpoint", type=Path)
    parser.add_argument("--size", type=int, default=1 << 30)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--value", type=int, default=100)
    options = parser.parse_args()
    operations = StaticFiles(options.size, options.files, options.value)
    kernel = {*pyfuse3.default_options, "fsname=static", "ro"}
    pyfuse3.init(operations, os.fspath(options.mountpoint), kernel)
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close()


if __name__ == "__main__":
    main()
