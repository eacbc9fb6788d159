"""Resources that all readers of an engine share: limits, open files, decoded batches.

Thread rules: everything here may be used from any thread. A ``Decoder`` belongs to the thread that
obtained it from ``decoder`` until it is returned.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from ...format.records.columns import Columns
from ...format.records.decoder import Decoder
from ...io.file_cache import FileCache, most_open_files
from ...io.remote.settings import DEFAULTS, RemoteSettings
from ...segment.segment import FilePool, is_removed
from .markers import Markers
from .point_lookup import LookupBuffers

# Identity of the .log file, and the batch's header. Both are needed: an inode number, or a position
# in a truncated log, may be reused for other batches.
BatchKey = tuple[tuple[int, int], tuple[int, ...]]

# Memory of a batch in addition to its bytes and columns: its Python objects and its cache entry.
_ENTRY_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """``max_batch_bytes``: largest batch, stored or decompressed, that is held in memory.
    ``cache_bytes``: decoded batches kept. ``open_files``: files and indexes kept open, fewer if
    the process limit is lower. ``remote``: for URLs and archives."""

    max_batch_bytes: int = 128 << 20
    cache_bytes: int = 64 << 20
    open_files: int = 8192
    remote: RemoteSettings = DEFAULTS


class BatchCache:
    """LRU cache of decoded batches, bounded by their bytes. `hits` and `misses` count calls of
    `get`."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._batches: OrderedDict[BatchKey, Columns] = OrderedDict()
        self._bytes = 0
        self.hits = self.misses = 0
        self._lock = threading.Lock()  # guards all attributes

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return self._bytes

    def get(self, key: BatchKey) -> Columns | None:
        with self._lock:
            columns = self._batches.get(key)
            if columns is None:
                self.misses += 1
                return None
            self.hits += 1
            self._batches.move_to_end(key)
            return columns

    def put(self, key: BatchKey, columns: Columns) -> None:
        size = entry_bytes(columns)
        if size > self._capacity:
            return
        with self._lock:
            replaced = self._batches.pop(key, None)
            self._bytes += size - (entry_bytes(replaced) if replaced is not None else 0)
            self._batches[key] = columns
            while self._bytes > self._capacity:
                self._bytes -= entry_bytes(self._batches.popitem(last=False)[1])


def entry_bytes(columns: Columns) -> int:
    """Returns the bytes that a batch occupies in the cache."""
    return columns.nbytes + _ENTRY_BYTES


class ReadContext:
    """Limits, caches and buffers of an engine's readers."""

    def __init__(self, limits: ReadLimits | None = None) -> None:
        self.limits = limits or ReadLimits()
        self.files: FilePool = FilePool(min(self.limits.open_files, most_open_files()))
        self.batches = BatchCache(self.limits.cache_bytes)
        # Markers of the segments read last; those of a long log would not all fit.
        self.markers: FileCache[tuple[tuple[int, int], tuple[int, int]], Markers] = FileCache(32)
        self._decoders: list[Decoder] = []  # idle; append and pop are atomic
        self._lookup_buffers: list[LookupBuffers] = []  # idle, too

    def close_removed(self) -> None:
        """Closes removed files and directories that are not being read: the kernel frees their
        disk space only then. Call it from time to time."""
        self.files.drop_values(is_removed)

    @contextmanager
    def decoder(self) -> Iterator[Decoder]:
        """Yields a decoder for the ``with`` block; its buffers are reused if possible."""
        try:
            decoder = self._decoders.pop()
        except IndexError:
            decoder = Decoder(self.limits.max_batch_bytes)
        try:
            yield decoder
        finally:
            if len(self._decoders) < 4 and decoder.nbytes < 16 << 20:
                self._decoders.append(decoder)

    def acquire_buffers(self) -> LookupBuffers:
        """Acquires buffers for a point lookup. Return them with `release_buffers`; omitting that,
        after an error, is harmless."""
        try:
            return self._lookup_buffers.pop()
        except IndexError:
            return LookupBuffers()

    def release_buffers(self, buffers: LookupBuffers) -> None:
        if len(self._lookup_buffers) < 4:
            self._lookup_buffers.append(buffers)
