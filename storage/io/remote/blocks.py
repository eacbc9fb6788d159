"""Caches blocks of files that are slow to read: in memory, and on the disk if requested.

A block's key contains the version of its file (an ETag, or size and time), so that a block of a
file that was replaced is never found.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

#: Bytes of a block. A point lookup reads one or two.
BLOCK: Final = 256 << 10

_HEADER: Final = struct.Struct("<4sII")  # magic, checksum, size
_MAGIC: Final = b"kfB1"
_SUFFIX: Final = ".block"
# Of the limit, what is left after blocks were removed because it was exceeded.
_KEPT: Final = 0.9

BlockKey = tuple[str, int]


class BlockCache:
    """Blocks in memory, the last used ones. Thread-safe."""

    def __init__(self, capacity: int, disk: DiskCache | None = None) -> None:
        self._capacity = capacity
        self._disk = disk
        self._blocks: OrderedDict[BlockKey, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: BlockKey) -> bytes | None:
        with self._lock:
            data = self._blocks.get(key)
            if data is not None:
                self._blocks.move_to_end(key)
                return data
        data = self._disk.get(key) if self._disk is not None else None
        if data is not None:
            self._keep(key, data)
        return data

    def has(self, key: BlockKey) -> bool:
        """Returns whether a block is cached, without reading it."""
        return key in self._blocks or (self._disk is not None and self._disk.has(key))

    def put(self, key: BlockKey, data: bytes) -> None:
        self._keep(key, data)
        if self._disk is not None:
            self._disk.put(key, data)

    def _keep(self, key: BlockKey, data: bytes) -> None:
        with self._lock:
            self._bytes += len(data) - len(self._blocks.pop(key, b""))
            self._blocks[key] = data
            while self._bytes > self._capacity:
                self._bytes -= len(self._blocks.popitem(last=False)[1])


class DiskCache:
    """Blocks in a directory, of several processes at once. What cannot be read or written there is
    as if it were not cached. Each block has a checksum, and is a file of its own; the ones used
    longest ago are removed when there is too much."""

    def __init__(self, directory: str, capacity: int) -> None:
        self._directory = os.path.join(directory, "blocks")
        self._capacity = capacity
        self._bytes = -1  # unknown until the first write
        self._lock = threading.Lock()

    def get(self, key: BlockKey) -> bytes | None:
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                magic, checksum, size = _HEADER.unpack(file.read(_HEADER.size))
                data = file.read(BLOCK + 1)
            if magic != _MAGIC or size != len(data) or zlib.crc32(data) != checksum:
                return None
            os.utime(path)
        except (OSError, struct.error):
            return None
        return data

    def has(self, key: BlockKey) -> bool:
        return os.path.exists(self._path(key))

    def put(self, key: BlockKey, data: bytes) -> None:
        path = self._path(key)
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            self._make_room(len(data) + _HEADER.size)
            with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), delete=False) as file:
                try:
                    file.write(_HEADER.pack(_MAGIC, zlib.crc32(data), len(data)) + data)
                    file.close()
                    os.replace(file.name, path)
                except BaseException:
                    with suppress(OSError):
                        os.unlink(file.name)
                    raise
        except OSError:
            return

    def _make_room(self, size: int) -> None:
        with self._lock:
            if self._bytes < 0:
                self._bytes = sum(each[1] for each in self._files())
            self._bytes += size
            if self._bytes <= self._capacity:
                return
            # Other processes write, too: only the directory knows how much there is.
            files = sorted(self._files())
            self._bytes = size + sum(each[1] for each in files)
            for _, found, path in files:
                if self._bytes <= self._capacity * _KEPT:
                    return
                with suppress(FileNotFoundError):
                    os.unlink(path)
                self._bytes -= found

    def _files(self) -> Iterator[tuple[int, int, str]]:
        """Yields time of last use, size and path of each block."""
        for above, _, names in os.walk(self._directory):
            for name in names:
                path = os.path.join(above, name)
                with suppress(FileNotFoundError):
                    status = os.lstat(path)
                    yield status.st_mtime_ns, status.st_size, path

    def _path(self, key: BlockKey) -> str:
        name = hashlib.blake2b(f"{key[1]}/{key[0]}".encode(), digest_size=20).hexdigest()
        return os.path.join(self._directory, name[:2], name[2:] + _SUFFIX)
