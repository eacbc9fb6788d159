"""Copies files into objects, only the bytes that the repository does not have yet.

A file of an earlier point whose inode, size and times are the same is not read again. One that has
grown, as an active segment does, keeps its pieces and gets another one; small pieces at its end are
joined with the new bytes, so that their number grows with the logarithm of the number of runs. All
other files are read, and pieces that hold the same bytes are used again.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

from ...backup.layout import PACKS
from ...backup.manifest import Piece, SourceState, StoredFile, StoredObject
from ...backup.writable_repository import WritableRepository, object_name
from ...errors import CorruptError, SegmentGone
from ...io.directory import ReadableFile
from ...segment.extent import Extent, Fault
from ...segment.walk import read_runs
from .file_copier import Advance, CopiedFile, FileCopier, Pack, PackedPiece, is_same

#: Smaller pieces share an object, of about this size.
SMALL_BYTES: Final = 64 << 10
_PACK_BYTES: Final = 8 << 20
_READ_BYTES: Final = 256 << 10
# The end of what a file had at the last run: if it is still the same, nothing before it was
# truncated and written again. A broker that truncates continues with batches of a later epoch.
_COMPARED_BYTES: Final = 64 << 10
# A thread sleeps this long at most, so that a run can be interrupted.
_LONGEST_SLEEP: Final = 0.5


class Bandwidth:
    """Limits the bytes per second that all threads read; None for no limit."""

    def __init__(self, bandwidth: int | None) -> None:
        self._bandwidth = bandwidth
        self._lock = threading.Lock()
        self._free_at = time.monotonic()

    def take(self, size: int) -> None:
        """Waits until as many bytes may be read."""
        if self._bandwidth is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + size / self._bandwidth
            until = self._free_at
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LONGEST_SLEEP))


class Copier(FileCopier):
    """Copies files into a repository. Any thread may use it. `objects`: those of earlier points;
    those that are new are added."""

    def __init__(
        self,
        repository: WritableRepository,
        objects: dict[str, StoredObject],
        bandwidth: Bandwidth,
        *,
        reread: bool,
    ) -> None:
        super().__init__(objects)
        self._repository = repository
        self._bandwidth, self._reread = bandwidth, reread
        self._pack = Pack()
        # What this run has copied, by identity, for partitions that are copied again.
        self._copied: dict[tuple[int, int], CopiedFile] = {}
        # Objects that an earlier run left without a manifest, by name without the digest.
        self._unnamed = {
            name.rpartition(".")[0]: name for name in repository.sizes if name not in objects
        }

    def copy(
        self,
        source: ReadableFile,
        path: str,
        size: int,
        prior: StoredFile | None,
        extent: Callable[[int], Extent] | None = None,
        advance: Advance = lambda size: None,
    ) -> CopiedFile:
        status = source.stat()
        state = SourceState(status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        if prior is not None and is_same(prior, state, size) and not self._reread:
            advance(size)
            return CopiedFile(path, size, prior.mtime_ns, state, prior.pieces, 0)
        earlier = self._copied.get(source.identity)
        if earlier is not None and earlier.source == state and earlier.size == size:
            advance(size)
            return earlier
        kept = [] if prior is None else self._kept(source, size, prior, state)
        start = sum(piece.size for piece in kept)
        while kept and start < size and kept[-1].size <= size - start:
            start -= kept.pop().size
        advance(start)
        faults: list[CorruptError] = []
        pieces: list[Piece | PackedPiece] = list(kept)
        new_bytes = 0
        if start < size:
            walked = extent(start) if extent is not None else None
            chunks = lambda: self._chunks(source, start, size, walked, faults)  # noqa: E731
            piece, new_bytes = self._store(path, start, size, chunks, advance)
            pieces.append(piece)
        copied = CopiedFile(path, size, status.st_mtime_ns, state, pieces, new_bytes, tuple(faults))
        self._copied[source.identity] = copied
        return copied

    def content(
        self, path: str, data: bytes, mtime_ns: int, prior: StoredFile | None
    ) -> CopiedFile:
        """Stores a small file with content of our own."""
        if prior is not None and prior.size == len(data):
            pieces = [self._bytes(piece) for piece in prior.pieces]
            if None not in pieces and b"".join(filter(None, pieces)) == data:
                return CopiedFile(path, len(data), prior.mtime_ns, None, prior.pieces, 0)
        found = [self._packed(data)] if data else []
        new_bytes = sum(new for _, new in found)
        return CopiedFile(path, len(data), mtime_ns, None, [piece for piece, _ in found], new_bytes)

    def finish(self) -> None:
        with self._lock:
            self._store_pack()

    # -- what the repository has -------------------------------------------------------------------

    def _kept(
        self, source: ReadableFile, size: int, prior: StoredFile, state: SourceState
    ) -> list[Piece]:
        """Returns the first pieces of the file in the last point that it still begins with."""
        within: list[Piece] = []
        end = 0
        for piece in prior.pieces:
            if end + piece.size > size:
                break
            within.append(piece)
            end += piece.size
        is_same_file = prior.source is not None and prior.source.inode == state.inode
        if is_same_file and within and not self._reread:
            return (
                within if self._ends_alike(source, end, within[-1]) else self._equal(source, within)
            )
        return self._equal(source, within)

    def _ends_alike(self, source: ReadableFile, end: int, last: Piece) -> bool:
        """Returns whether a file's bytes before `end` are those at the end of its piece."""
        size = min(last.size, _COMPARED_BYTES)
        tail = Piece(last.object, last.position + last.size - size, size)
        return self._bytes(tail) == source.read(end - size, size)

    def _equal(self, source: ReadableFile, pieces: Sequence[Piece]) -> list[Piece]:
        equal: list[Piece] = []
        position = 0
        for piece in pieces:
            stored = self.objects[piece.object]
            if piece.size == stored.size and piece.size >= SMALL_BYTES:
                is_equal = self._digest(self._read(source, position, piece.size)) == stored.sha256
                is_equal = is_equal and self._repository.has(stored)
            else:
                is_equal = self._bytes(piece) == source.read(position, piece.size)
            if not is_equal:
                break
            equal.append(piece)
            position += piece.size
        return equal

    def _bytes(self, piece: Piece) -> bytes | None:
        """Returns the bytes of a small piece, None if its object cannot be read."""
        try:
            file = self._repository.open_object(self.objects[piece.object])
        except CorruptError:
            return None
        return file.read(piece.position, piece.size)

    def _digest(self, chunks: Iterator[memoryview]) -> str:
        digest = hashlib.sha256()
        for chunk in chunks:
            digest.update(chunk)
        return digest.hexdigest()

    # -- what it does not --------------------------------------------------------------------------

    def _store(
        self,
        path: str,
        start: int,
        end: int,
        chunks: Callable[[], Iterator[memoryview]],
        advance: Advance,
    ) -> tuple[Piece | PackedPiece, int]:
        """Stores bytes of a file. Returns their piece, and how many had to be stored."""
        size = end - start
        if size < SMALL_BYTES:
            data = bytearray()
            for chunk in chunks():  # not b"".join, which would keep chunks that are valid no more
                data += chunk
            advance(size)
            return self._packed(bytes(data))
        above, _, name = path.rpartition("/")
        folder, stem = above or "log-dir", f"{name}.{start}-{end}"
        left = self._unnamed.get(f"{folder}/{stem}")
        if left is not None and self._repository.sizes.get(left) == size:
            digest = self._digest(chunks())
            if object_name(folder, stem, digest) == left:
                advance(size)
                self._add(StoredObject(left, size, digest))
                return Piece(left, 0, size), 0
        with self._repository.new_object() as writer:
            for chunk in chunks():
                writer.write(chunk)
                advance(len(chunk))
            stored = writer.finish(folder, stem)
        with self._lock:
            self.stored_bytes += size
        self._add(stored)
        return Piece(stored.name, 0, size), size

    def _packed(self, data: bytes) -> tuple[PackedPiece, int]:
        """Adds bytes to the pack, unless it has the same ones. Returns their piece, and how many
        had to be added."""
        with self._lock:
            pack = self._pack
            known = pack.positions.get(data)
            if known is not None:
                return PackedPiece(pack, known, len(data)), 0
            position = pack.positions[data] = len(pack.data)
            pack.data += data
            if len(pack.data) >= _PACK_BYTES:
                self._store_pack()
        return PackedPiece(pack, position, len(data)), len(data)

    def _store_pack(self) -> None:
        """Stores the pack. The caller holds the lock."""
        pack, self._pack = self._pack, Pack()
        if not pack.data:
            return
        self.stored_bytes += len(pack.data)
        stored = self._repository.put(PACKS, "", pack.data)
        self.objects[stored.name] = stored
        pack.name = stored.name
        pack.data, pack.positions = bytearray(), {}

    def _add(self, stored: StoredObject) -> None:
        with self._lock:
            self.objects[stored.name] = stored

    def _chunks(
        self,
        source: ReadableFile,
        start: int,
        end: int,
        extent: Extent | None,
        faults: list[CorruptError],
    ) -> Iterator[memoryview]:
        """Yields bytes of a file, each valid until the next; adds what is wrong with its batches.
        Raises SegmentGone if there are fewer."""
        del faults[:]
        position = start
        for item in () if extent is None else read_runs(extent, _READ_BYTES, together=True):
            if isinstance(item, Fault):
                faults.append(item.error)
                continue
            yield from self._read(source, position, item.base - position)
            last = item.table[len(item.table) - 1]
            data = item.data[: last.next_position - item.base]
            self._bandwidth.take(len(data))
            yield data
            position = last.next_position
        yield from self._read(source, position, end - position)

    def _read(self, source: ReadableFile, position: int, size: int) -> Generator[memoryview]:
        buffer = memoryview(bytearray(min(size, _READ_BYTES)))
        while size > 0:
            count = min(size, len(buffer))
            self._bandwidth.take(count)
            if source.read_into(position, buffer[:count]) < count:
                raise SegmentGone(source.path)
            yield buffer[:count]
            position, size = position + count, size - count
