"""A source that is read in blocks, through a cache, many at a time, and ahead of its readers."""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Final

from .blocks import BLOCK, BlockCache, BlockKey, Cached, DiskCache
from .requests import ShortRead
from .settings import RemoteSettings
from .source import SnapshotNode, Source

#: Blocks of one request, at most.
_SPAN: Final = 16
_THREADS: Final = 16
# As many calls of `will_read` back, a partition counts as one that is being read.
_LATELY: Final = 32
# A file of up to this size is read whole, also an index, of which a reader needs entries all over.
_WHOLE: Final = 1 << 20
_WHOLE_INDEX: Final = 32 << 20


@lru_cache(maxsize=4)
def block_cache(settings: RemoteSettings) -> BlockCache:
    """Returns the cache that all sources with these settings share."""
    disk = DiskCache(settings.cache_dir, settings.cache_bytes) if settings.cache_dir else None
    return BlockCache(settings.memory_bytes, disk)


@lru_cache(maxsize=1)
def _threads(_pid: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="kafkafs-remote")


class BlockSource(Source):
    """A source whose `fetch` is slow."""

    def __init__(self, settings: RemoteSettings) -> None:
        super().__init__()
        self.settings = settings
        self._cache = block_cache(settings)
        self._pid = os.getpid()
        self._coming: dict[BlockKey, Future[bytes]] = {}  # requested now, by the first block
        self._starts: dict[BlockKey, BlockKey] = {}  # of each block that is coming, the first one
        self._ahead_of: deque[str] = deque(maxlen=_LATELY)  # directories of files that are read
        self._lock = threading.Lock()  # guards the three

    @abstractmethod
    def fetch(self, path: str, node: SnapshotNode, position: int, size: int) -> bytes:
        """Returns exactly these bytes of a file. Raises what `Source.read` raises."""

    def read(self, path: str, node: SnapshotNode, position: int, buffer: memoryview) -> None:
        first, last = position // BLOCK, (position + len(buffer) - 1) // BLOCK
        whole = _WHOLE_INDEX if path.endswith("index") else _WHOLE
        if node.size <= whole and not self._cache.has((_key(path, node), first)):
            self._blocks(path, node, 0, (node.size - 1) // BLOCK, buffer, position)
        else:
            self._blocks(path, node, first, last, buffer, position)

    def _blocks(
        self,
        path: str,
        node: SnapshotNode,
        first: int,
        last: int,
        buffer: memoryview,
        position: int,
    ) -> None:
        """Copies what blocks have of the bytes from `position` on into `buffer`."""
        cached, coming = self._request(path, node, first, last, is_ahead=False)
        for number, data in cached:
            _copy(data, number * BLOCK, buffer, position)
        for number, future in coming:
            _copy(future.result(), number * BLOCK, buffer, position)

    def will_read(self, path: str, node: SnapshotNode, position: int, size: int) -> None:
        if not self.is_parallel:
            return
        with self._lock:
            self._ahead_of.append(path.rpartition("/")[0])
            readers = len(set(self._ahead_of))
        # What is evicted before it is read would be requested twice.
        size = min(size, self.settings.memory_bytes // 2 // readers)
        # Whole spans, so that a reader of small pieces causes few requests.
        first = position // BLOCK
        last = (position + size - 1) // BLOCK // _SPAN * _SPAN + _SPAN - 1
        self._request(path, node, first, min(last, (node.size - 1) // BLOCK), is_ahead=True)

    def _request(
        self, path: str, node: SnapshotNode, first: int, last: int, *, is_ahead: bool
    ) -> tuple[list[tuple[int, Cached]], list[tuple[int, Future[bytes]]]]:
        """Returns the cached ones of the blocks, by number, and what is coming, by the number of
        its first block; requests all others."""
        self._forget_if_forked()
        key = _key(path, node)
        cached: list[tuple[int, Cached]] = []
        coming: dict[int, Future[bytes]] = {}
        missing: list[int] = []
        mine: list[tuple[int, int, Future[bytes]]] = []
        for number in range(first, last + 1):
            if is_ahead and self._cache.has((key, number)):
                continue
            data = None if is_ahead else self._cache.get((key, number))
            if data is None:
                missing.append(number)
            else:
                cached.append((number, data))
        with self._lock:
            rest = []
            for number in missing:
                at = self._starts.get((key, number))
                if at is None:
                    rest.append(number)
                else:
                    coming[at[1]] = self._coming[at]
            for start, end in _spans(rest):
                future: Future[bytes] = Future()
                self._coming[key, start] = future
                self._starts.update({(key, n): (key, start) for n in range(start, end + 1)})
                coming[start] = future
                mine.append((start, end, future))
        here = [] if is_ahead else mine[-1:] if self.is_parallel else mine
        for start, end, future in mine:
            if (start, end, future) not in here:
                _threads(os.getpid()).submit(self._fetch, path, node, start, end, future)
        for start, end, future in here:
            self._fetch(path, node, start, end, future)
        return cached, sorted(coming.items())

    def _fetch(
        self, path: str, node: SnapshotNode, start: int, end: int, future: Future[bytes]
    ) -> None:
        """Reads the blocks from `start` to `end` for all who wait for `future`."""
        key, position = _key(path, node), start * BLOCK
        try:
            size = min((end + 1) * BLOCK, node.size) - position
            data = self.fetch(path, node, position, size)
            if len(data) != size:
                raise ShortRead(f"{len(data)} of {size} bytes")
            self._cache.put((key, start), data)
        except BaseException as error:  # noqa: BLE001 - raised where the result is needed
            self._forget(key, start, end)
            future.set_exception(error)
        else:
            self._forget(key, start, end)
            future.set_result(data)

    def _forget(self, key: str, start: int, end: int) -> None:
        with self._lock:
            self._coming.pop((key, start), None)
            for number in range(start, end + 1):
                self._starts.pop((key, number), None)

    def _forget_if_forked(self) -> None:
        """In a forked process no thread of the parent goes on: what was coming never comes."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._lock = threading.Lock()
            self._coming, self._starts = {}, {}


def _key(path: str, node: SnapshotNode) -> str:
    return f"{path}\0{node.version}\0{node.size}\0{node.status.st_mtime_ns}"


def _spans(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields the first and last of ascending numbers without a gap, _SPAN of them at most."""
    start = end = -1
    for number in numbers:
        if start >= 0 and number == end + 1 and number // _SPAN == start // _SPAN:
            end = number
            continue
        if start >= 0:
            yield start, end
        start = end = number
    if start >= 0:
        yield start, end


def _copy(data: Cached, start: int, buffer: memoryview, position: int) -> None:
    """Copies the part of `data`, which begins at `start`, that belongs into `buffer`, which begins
    at `position`."""
    begin, end = max(start, position), min(start + len(data), position + len(buffer))
    if begin < end:
        buffer[begin - position : end - position] = memoryview(data)[begin - start : end - start]
