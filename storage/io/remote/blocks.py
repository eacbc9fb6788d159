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
Cached = bytes | memoryview


class BlockCache:
    """Blocks in memory, the last used ones. Thread-safe.

    Blocks that arrived together are kept together, as the bytes that arrived, and go together, when
    none of them was used lately: a stream would copy all bytes once more otherwise.
    """

    def __init__(self, capacity: int, disk: DiskCache | None = None) -> None:
        self._capacity = capacity
        self._disk = disk
        self._runs: OrderedDict[BlockKey, bytes] = OrderedDict()  # by their first block
        self._starts: dict[BlockKey, BlockKey] = {}  # of each block, the first of its run
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: BlockKey) -> Cached | None:
        with self._lock:
            start = self._starts.get(key)
            if start is not None:
                self._runs.move_to_end(start)
                at = (key[1] - start[1]) * BLOCK
                return memoryview(self._runs[start])[at : at + BLOCK]
        data = self._disk.get(key) if self._disk is not None else None
        if data is not None:
            self._keep(key, data)
        return data

    def has(self, key: BlockKey) -> bool:
        """Returns whether a block is cached, without reading it."""
        return key in self._starts or (self._disk is not None and self._disk.has(key))

    def put(self, key: BlockKey, data: bytes) -> None:
        """Keeps the blocks from `key` on, all but the last one whole."""
        self._keep(key, data)
        if self._disk is not None:
            for number, at in enumerate(range(0, len(data), BLOCK), key[1]):
                self._disk.put((key[0], number), data[at : at + BLOCK])

    def _keep(self, key: BlockKey, data: bytes) -> None:
        with self._lock:
            for each in _keys(key, data):
                if each in self._starts:  # is replaced
                    self._drop(self._starts[each])
            self._runs[key] = data
            self._starts.update((each, key) for each in _keys(key, data))
            self._bytes += len(data)
            while self._bytes > self._capacity:
                self._drop(next(iter(self._runs)))

    def _drop(self, start: BlockKey) -> None:
        data = self._runs.pop(start)
        self._bytes -= len(data)
        for each in _keys(start, data):
            del self._starts[each]


def _keys(start: BlockKey, data: bytes) -> Iterator[BlockKey]:
    """Yields the keys of the blocks in `data`."""
    for number in range(start[1], start[1] + max(-(-len(data) // BLOCK), 1)):
        yield start[0], number


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
