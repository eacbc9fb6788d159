"""A log whose chunks are compressed and encrypted, read as a file."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Final

from ...errors import CorruptError
from ...io.assembled import AssembledFile
from ...io.directory import ReadableFile
from .encryption import SegmentCipher
from .manifest import MAX_CHUNK_BYTES, Manifest, decompressed

#: Chunks that an open log keeps decoded: a scan reads a run in pieces, of which one may begin in
#: the chunk before.
_CHUNKS_KEPT: Final = 2


class ChunkedLog(AssembledFile):
    """A log in an object. A chunk that cannot be decoded reads as zeros, in which no reader finds a
    batch; `error_between` says why."""

    __slots__ = (
        "_chunks", "_cipher", "_decoded", "_errors", "_is_compressed", "_lock", "_object"
    )  # fmt: skip

    def __init__(
        self,
        found: ReadableFile,
        manifest: Manifest,
        cipher: SegmentCipher | None,
        status: os.stat_result,
    ) -> None:
        """`status`: that of the log, not of its object."""
        super().__init__(found.path, status)
        self._object = found
        self._chunks = manifest.chunks
        self._is_compressed = manifest.is_compressed
        self._cipher = cipher
        self._lock = threading.Lock()  # guards the attributes below
        self._decoded: OrderedDict[int, bytes] = OrderedDict()  # least recently used first
        self._errors: dict[int, CorruptError] = {}

    def pread(self, position: int, size: int) -> bytes:
        if size <= 0:
            return b""
        number, offset = divmod(position, self._chunks.original_size)
        return self._chunk(number)[offset : offset + size]

    def error_between(self, start: int, end: int) -> CorruptError | None:
        size = self._chunks.original_size
        with self._lock:
            for number in sorted(self._errors):
                if number * size < end and start < (number + 1) * size:
                    return self._errors[number]
        return None

    def _chunk(self, number: int) -> bytes:
        with self._lock:
            known = self._decoded.get(number)
            if known is not None:
                self._decoded.move_to_end(number)
                return known
        try:
            chunk = self._decode(number)
        except ValueError as error:
            position = int(self._chunks.positions[number])
            found = CorruptError(f"chunk {number}: {error}", self.path, position)
            with self._lock:
                self._errors[number] = found
            chunk = bytes(self._chunks.original(number))
        with self._lock:
            self._decoded[number] = chunk
            while len(self._decoded) > _CHUNKS_KEPT:
                self._decoded.popitem(last=False)
        return chunk

    def _decode(self, number: int) -> bytes:
        """Returns the content of a chunk. Raises ValueError if it cannot be decoded."""
        start, end = self._chunks.positions[number : number + 2].tolist()
        expected = self._chunks.original(number)
        if max(end - start, expected) > MAX_CHUNK_BYTES:
            raise ValueError(f"larger than {MAX_CHUNK_BYTES} bytes")
        data = self._object.read(start, end - start)
        if len(data) < end - start:
            raise ValueError(f"{end - start} bytes in the manifest, {len(data)} in the object")
        if self._cipher is not None:
            data = self._cipher.decrypt(data)
        if self._is_compressed:
            try:
                data = decompressed(data, expected)
            except ValueError as error:
                raise ValueError(f"it does not decompress to {expected} bytes: {error}") from None
        if len(data) != expected:
            raise ValueError(f"has {len(data)} bytes of the log, the manifest says {expected}")
        return data
