"""The manifest of a segment (SegmentManifestV1 of Aiven's plugin): how its objects were made.

A log is split into chunks of one size, the last one shorter. Each chunk is compressed with zstd if
`compression` says so, then encrypted if there is a data key, and appended to the `.log` object. The
chunk index has the sizes that resulted: one for all but the last ("fixed"), or each ("variable").
The indexes follow each other in one object, each encrypted as a whole.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import cramjam
import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptError
from ...format.files.checkpoints import EpochEntry
from ...format.layout import MAX_INT32, MAX_OFFSET
from ...format.primitives import is_uuid_text
from ..layout import RemoteFileKind
from ..segments import RemoteSegment

MAX_MANIFEST_BYTES: Final = 64 << 20
#: The most bytes of the list of chunk sizes, decompressed (TransformedChunksDeserializer has less).
_MAX_SIZES_BYTES: Final = 64 << 20
#: The largest chunk that is held in memory.
MAX_CHUNK_BYTES: Final = 256 << 20

_INDEXES: Final = {
    RemoteFileKind.OFFSET_INDEX: "offset",
    RemoteFileKind.TIME_INDEX: "timestamp",
    RemoteFileKind.PRODUCER_SNAPSHOT: "producerSnapshot",
    RemoteFileKind.LEADER_EPOCHS: "leaderEpoch",
    RemoteFileKind.TRANSACTION_INDEX: "transaction",
}


@dataclass(frozen=True, slots=True, eq=False)
class ChunkIndex:
    """Chunk i has the bytes of a log from i * `original_size` on, and is the bytes
    [`positions`[i], `positions`[i + 1]) of the object; int64 of shape (chunks + 1,)."""

    original_size: int
    file_size: int
    positions: NDArray[np.int64]

    def original(self, number: int) -> int:
        """Returns the bytes of a log that a chunk has."""
        start = number * self.original_size
        return min(self.original_size, self.file_size - start)


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """The key of a segment's objects, encrypted with the RSA key `key_id`, and the data that are
    authenticated with each chunk."""

    key_id: str
    wrapped: bytes
    aad: bytes


@dataclass(frozen=True, slots=True)
class Manifest:
    """`indexes`: position and size of each index in their object. `segment`: None if the manifest
    does not describe it."""

    chunks: ChunkIndex
    indexes: Mapping[RemoteFileKind, tuple[int, int]]
    is_compressed: bool
    key: WrappedKey | None
    segment: RemoteSegment | None


def parse_manifest(data: bytes) -> Manifest:
    """Parses a manifest. Raises CorruptError if it is not one, or contradicts itself."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise CorruptError("not JSON") from None
    version = _field(found, "version", str)
    if version != "1":
        raise CorruptError(f"a manifest of version {version!r}, only 1 is known")
    chunks = _chunk_index(_field(found, "chunkIndex", dict))
    encryption = found.get("encryption")
    return Manifest(
        chunks,
        dict(_indexes(_field(found, "segmentIndexes", dict))),
        _field(found, "compression", bool),
        None if encryption is None else _key(encryption),
        _segment(found.get("remoteLogSegmentMetadata"), chunks.file_size),
    )


def _chunk_index(found: Mapping[str, Any]) -> ChunkIndex:
    kind = _field(found, "type", str)
    size, total = _int(found, "originalChunkSize", 1), _int(found, "originalFileSize", 0)
    count = -(-total // size)
    if kind == "fixed":
        each = _int(found, "transformedChunkSize", 0)
        last = _int(found, "finalTransformedChunkSize", 0)
        if count > _MAX_SIZES_BYTES:
            raise CorruptError(f"{count} chunks of {size} bytes are too many")
        sizes = np.full(count, each, dtype=np.int64)
        sizes[count - 1 :] = last
    elif kind == "variable":
        sizes = decode_sizes(_field(found, "transformedChunks", str))
        if len(sizes) != count and (total or len(sizes) > 1):
            what = f"{len(sizes)} chunks, but {total} bytes in chunks of {size} are {count}"
            raise CorruptError(what)
        sizes = sizes[:count]
    else:
        raise CorruptError(f"an unknown chunk index {kind!r}")
    positions = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(sizes, out=positions[1:])
    return ChunkIndex(size, total, positions)


def decode_sizes(text: str) -> NDArray[np.int64]:
    """Decodes a list of chunk sizes (ChunkSizesBinaryCodec): Base64 of zstd of a count, the least
    size, the number of bytes of a difference to it, the differences of all but the last size, and
    the last size; big-endian."""
    try:
        packed = base64.b64decode(text, validate=True)
        data = decompressed(packed, _MAX_SIZES_BYTES)
    except (binascii.Error, ValueError):
        raise CorruptError("the sizes of chunks are not Base64 of zstd") from None
    count = int.from_bytes(data[:4], "big")
    if len(data) < 4 or count > len(data):
        raise CorruptError("the list of chunk sizes is cut off")
    if not count:
        return np.zeros(0, dtype=np.int64)
    if count == 1:
        parts = [data[4:8]]
        sizes = np.array([int.from_bytes(parts[0], "big")], dtype=np.int64)
        expected = 8
    else:
        base, width = int.from_bytes(data[4:8], "big"), data[8] if len(data) > 8 else 0
        expected = 9 + (count - 1) * width + 4
        if not 1 <= width <= 4 or len(data) != expected:
            raise CorruptError("the list of chunk sizes has a wrong length")
        raw = np.frombuffer(data, np.uint8, (count - 1) * width, 9).reshape(-1, width)
        weights = 256 ** np.arange(width - 1, -1, -1, dtype=np.int64)
        last = int.from_bytes(data[-4:], "big")
        sizes = np.append(raw.astype(np.int64) @ weights + base, last)
    if len(data) != expected or int(sizes.max()) > MAX_INT32:
        raise CorruptError("the list of chunk sizes has a wrong length or a wrong size")
    return sizes


def decompressed(data: bytes, limit: int) -> bytes:
    """Decompresses zstd into at most `limit` bytes. Raises ValueError."""
    out = bytearray(limit if limit < 1 << 20 else min(limit, 64 * len(data) + (1 << 16)))
    while True:
        try:
            size = cramjam.zstd.decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if len(out) >= limit:
                raise ValueError(str(error)) from None
            out = bytearray(min(limit, 4 * len(out)))
            continue
        return bytes(memoryview(out)[:size])


def _indexes(found: Mapping[str, Any]) -> Any:
    for kind, name in _INDEXES.items():
        index = found.get(name)
        if index is None and kind is RemoteFileKind.TRANSACTION_INDEX:
            continue
        if not isinstance(index, dict):
            raise CorruptError(f"no {name} in segmentIndexes")
        yield kind, (_int(index, "position", 0), _int(index, "size", 0))


def _key(found: Any) -> WrappedKey:
    if not isinstance(found, dict):
        raise CorruptError("encryption is not an object")
    key_id, separator, wrapped = _field(found, "dataKey", str).partition(":")
    try:
        aad = base64.b64decode(_field(found, "aad", str), validate=True)
        if not separator:
            raise ValueError
        return WrappedKey(key_id, base64.b64decode(wrapped, validate=True), aad)
    except (binascii.Error, ValueError):
        raise CorruptError("dataKey is not ID:BASE64, or aad is not Base64") from None


def _segment(found: Any, size: int) -> RemoteSegment | None:
    if found is None:
        return None
    if not isinstance(found, dict):
        raise CorruptError("remoteLogSegmentMetadata is not an object")
    epochs = _field(found, "segmentLeaderEpochs", dict)
    segment_id = _field(_field(found, "remoteLogSegmentId", dict), "id", str)
    if not is_uuid_text(segment_id):
        raise CorruptError("the id of the segment is not a UUID")
    entries = []
    for epoch in epochs:
        if not epoch.isascii() or not epoch.isdigit() or int(epoch) > MAX_INT32:
            raise CorruptError(f"leader epoch {epoch!r}")
        entries.append(EpochEntry(int(epoch), _int(epochs, epoch, 0, MAX_OFFSET)))
    entries.sort(key=lambda each: each.epoch)
    start = _int(found, "startOffset", 0, MAX_OFFSET)
    end = _int(found, "endOffset", start, MAX_OFFSET)
    return RemoteSegment(segment_id, start, end, tuple(entries), size)


def _field(found: Any, name: str, kind: type) -> Any:
    value = found.get(name) if isinstance(found, dict) else None
    if not isinstance(value, kind):
        raise CorruptError(f"no {name} in the manifest, or not of the right type")
    return value


def _int(found: Mapping[str, Any], name: str, least: int, most: int = MAX_INT32) -> int:
    value = found.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise CorruptError(f"{name} is not a number from {least} to {most}")
    return value
