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
from itertools import pairwise
from typing import Final

from ...backup.layout import PACKS
from ...backup.manifest import Piece, SourceState, StoredFile, StoredObject
from ...backup.writable_repository import WritableRepository, object_name
from ...concurrency.unit_threads import Advance, ignore_advance, run_units
from ...errors import CorruptError, SegmentGone
from ...io.directory import ReadableFile
from ...segment.extent import Fault
from ...segment.walk import BatchRun, read_runs
from .file_copier import CopiedFile, FileCopier, LogBatches, Pack, PackedPiece, is_same

#: Smaller pieces share an object, of about this size.
SMALL_BYTES: Final = 64 << 10
_PACK_BYTES: Final = 8 << 20
_READ_BYTES: Final = 1 << 20
#: Larger files are copied in parts of this size, each of which becomes an object of its own: so all
#: processors hash them, and SHA-256 takes most of the time.
PART_BYTES: Final = 32 << 20
# An object becomes no larger, give or take _READ_BYTES: a server gets it in one request.
_MOST_BYTES: Final = 2 * PART_BYTES
#: Threads that wait until objects are on the disk, while as many as there are processors copy.
SYNCING: Final = 4
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


class _Part:
    """Bytes [`start`, `end`) of a file, which one thread copies. Notes what is wrong with their
    batches, and their first and last offset (-1 if there is none)."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.faults: list[CorruptError] = []
        self.first = self.last = -1

    @property
    def size(self) -> int:
        return self.end - self.start

    def forget(self) -> None:
        """Begins again, because the part is read again."""
        del self.faults[:]
        self.first = self.last = -1

    def note(self, first: int, last: int) -> None:
        self.first = first if self.first < 0 else self.first
        self.last = last


def _parts(start: int, end: int, batches: LogBatches | None) -> list[_Part]:
    """Returns the parts of a range, each but the last of about PART_BYTES. Those of a log begin
    with a batch."""
    if start == end:
        return []
    cuts = [start]
    while end - cuts[-1] > PART_BYTES:
        cut = cuts[-1] + PART_BYTES
        cut = cut if batches is None else batches.boundary(cut)
        if cut - cuts[-1] < PART_BYTES // 2:  # the index is missing, or knows too little
            break
        cuts.append(cut)
    return [_Part(*each) for each in pairwise((*cuts, end))]


def _is_disordered(parts: Sequence[_Part]) -> bool:
    """Returns whether offsets do not ascend from one part to the next."""
    there = [part for part in parts if part.first >= 0]
    return any(before.last >= after.first for before, after in pairwise(there))


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
        batches: LogBatches | None = None,
        advance: Advance = ignore_advance,
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
        # Those of a whole part stay, so that a log that grows is not copied again.
        while kept and kept[-1].size <= size - start and kept[-1].size < PART_BYTES // 2:
            start -= kept.pop().size
        advance(start)
        parts = _parts(start, size, batches)
        pieces: list[Piece | PackedPiece] = list(kept)
        new_bytes = 0
        for found, new in self._store_parts(source, path, parts, batches, advance):
            pieces += found
            new_bytes += new
        faults = self._faults(parts, batches)
        copied = CopiedFile(path, size, status.st_mtime_ns, state, pieces, new_bytes, faults)
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

    def _store_parts(
        self,
        source: ReadableFile,
        path: str,
        parts: Sequence[_Part],
        batches: LogBatches | None,
        advance: Advance,
    ) -> Sequence[tuple[Sequence[Piece | PackedPiece], int]]:
        """Stores parts of a file, several at a time. Returns the pieces of each, and how many bytes
        had to be stored."""
        reported = 0

        def report(done: int, _total: int) -> None:
            nonlocal reported
            advance(done - reported)
            reported = done

        return run_units(
            parts,
            lambda part, advance: self._store(
                path, part, lambda: self._chunks(source, part, batches), advance
            ),
            lambda part: part.size,
            report,
            SYNCING,
        )

    def _store(
        self, path: str, part: _Part, chunks: Callable[[], Iterator[memoryview]], advance: Advance
    ) -> tuple[Sequence[Piece | PackedPiece], int]:
        if part.size < SMALL_BYTES:
            data = bytearray()
            for chunk in chunks():  # not b"".join, which would keep chunks that are valid no more
                data += chunk
            advance(part.size)
            piece, new_bytes = self._packed(bytes(data))
            return [piece], new_bytes
        above, _, name = path.rpartition("/")
        folder = above or "log-dir"
        left = self._left(folder, f"{name}.{part.start}-{part.end}", part.size, chunks)
        if left is not None:
            advance(part.size)
            self._add(left)
            return [Piece(left.name, 0, left.size)], 0
        pieces: list[Piece] = []
        stream, position = chunks(), part.start
        while position < part.end:
            start = position
            with self._repository.new_object() as writer:
                for chunk in stream:
                    writer.write(chunk)
                    position += len(chunk)
                    advance(len(chunk))
                    if position - start >= _MOST_BYTES:
                        break
                stored = writer.finish(folder, f"{name}.{start}-{position}")
            self._add(stored)
            pieces.append(Piece(stored.name, 0, stored.size))
        with self._lock:
            self.stored_bytes += part.size
        return pieces, part.size

    def _left(
        self, folder: str, stem: str, size: int, chunks: Callable[[], Iterator[memoryview]]
    ) -> StoredObject | None:
        """Returns an object with these bytes that an earlier run left without a manifest."""
        left = self._unnamed.get(f"{folder}/{stem}")
        if left is None or self._repository.sizes.get(left) != size:
            return None
        digest = self._digest(chunks())
        is_it = object_name(folder, stem, digest) == left
        return StoredObject(left, size, digest) if is_it else None

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
        self, source: ReadableFile, part: _Part, batches: LogBatches | None
    ) -> Iterator[memoryview]:
        """Yields bytes of a file, each valid until the next; notes in the part what its batches
        are. Raises SegmentGone if there are fewer."""
        part.forget()
        position = part.start
        for item in self._runs(part.start, part.end, batches):
            if isinstance(item, Fault):
                part.faults.append(item.error)
                continue
            yield from self._read(source, position, item.base - position)
            first, last = item.table[0], item.table[len(item.table) - 1]
            part.note(first.base_offset, last.last_offset)
            data = item.data[: last.next_position - item.base]
            self._bandwidth.take(len(data))
            yield data
            position = last.next_position
        yield from self._read(source, position, part.end - position)

    def _runs(self, start: int, end: int, batches: LogBatches | None) -> Iterator[BatchRun | Fault]:
        if batches is None or start == end:
            return iter(())
        return read_runs(batches.extent(start, end), _READ_BYTES, together=True)

    def _faults(self, parts: Sequence[_Part], batches: LogBatches | None) -> Sequence[CorruptError]:
        """Returns what is wrong with the batches of a file. If something is, and the index said
        where the parts begin, the index may be wrong: only a walk over all of them tells."""
        found = [error for part in parts for error in part.faults]
        if len(parts) < 2 or not (found or _is_disordered(parts)):
            return found
        del found[:]
        for item in self._runs(parts[0].start, parts[-1].end, batches):
            if isinstance(item, Fault):
                found.append(item.error)
            else:
                self._bandwidth.take(len(item.data))
        return found

    def _read(self, source: ReadableFile, position: int, size: int) -> Generator[memoryview]:
        buffer = memoryview(bytearray(min(size, _READ_BYTES)))
        while size > 0:
            count = min(size, len(buffer))
            self._bandwidth.take(count)
            if source.read_into(position, buffer[:count]) < count:
                raise SegmentGone(source.path)
            yield buffer[:count]
            position, size = position + count, size - count
