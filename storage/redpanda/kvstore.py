"""What Redpanda's key-value store says about the unseen offsets of partitions.

Each core has a store, `redpanda/kvstore/<core>_<revision>/`: a `snapshot` of all pairs and the
segments with the changes after it (`storage/kvstore.cc`). All numbers are little-endian. A key
begins with an int8, its key space. Two of these are read:

- 7, shard_placement: int32 2, int64 raft group → an envelope with the namespace, the topic, the
  partition and its revision (`cluster/shard_placement_table.cc`; since Redpanda 24.2)
- 4, offset_translator: int8 0, int64 raft group → an envelope with the unseen offsets before the
  first range, and ranges of them; int8 1, int64 raft group → int64, the last offset that these
  ranges are about (`storage/offset_translator.cc`)

An envelope is int8 version, int8 compatible version and uint32 size, and then its fields.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from ..errors import CorruptError, SegmentGone
from ..format.checksum import crc32c
from ..format.messages.writing import unsigned_varint
from ..format.primitives import read_varlong
from ..io.directory import Directory
from .log_start import SNAPSHOT_FILE, LogStart, snapshot_parts
from .names import RECORD_VERSION, parse_partition, parse_segment

STORE_NAMESPACE: Final = "redpanda"
STORE_TOPIC: Final = "kvstore"

_MAX_BYTES: Final = 256 << 20
_HEADER: Final = Struct("<IiqbIhiqqqhii")
_AFTER_CHECKSUM: Final = Struct("<iqbIhiqqqhii")
_COVERED: Final = Struct(">hiqqqhii")
_TERM: Final = Struct("<qb")
_RECORD: Final = Struct("<Ibqi")
_INT32: Final = Struct("<i")
_UINT32: Final = Struct("<I")
_INT64: Final = Struct("<q")
_ENVELOPE: Final = Struct("<BBI")
_GROUP_KEY: Final = Struct("<bbq")  # of offset_translator: key space, what, group
_PLACEMENT_KEY: Final = Struct("<biq")
_RANGE: Final = Struct("<qi")
_KVSTORE_TYPE: Final = 4
_TRANSLATOR: Final = 4
_PLACEMENT: Final = 7
_CURRENT_STATE: Final = 2
_RANGES, _HIGHEST = 0, 1


class Placed(NamedTuple):
    """A partition of one revision."""

    namespace: str
    topic: str
    partition: int
    revision: int


@dataclass(frozen=True, slots=True)
class UnseenOffsets:
    """The unseen offsets of a partition up to its offset `known_until`. `ends`: the last offsets of
    ranges of them, ascending; `unseen`: up to each, how many there are. The first range stands for
    all before its end, where the log began."""

    ends: Sequence[int]
    unseen: Sequence[int]
    known_until: int

    def start_of(self, base_offset: int) -> LogStart | None:
        """Returns an offset from `base_offset` on with the number of unseen ones before it, None if
        that is not known."""
        if base_offset > self.known_until + 1:
            return None
        if self.ends[0] >= base_offset:
            return LogStart(self.ends[0] + 1, self.unseen[0])
        return LogStart(base_offset, self.unseen[bisect_left(self.ends, base_offset) - 1])


def read_unseen_offsets(data: Directory) -> dict[Placed, UnseenOffsets]:
    """Returns what the stores in a data directory know. Raises CorruptError if one is damaged,
    SegmentGone if there is none."""
    above = data.child(STORE_NAMESPACE).child(STORE_TOPIC)
    found: dict[Placed, UnseenOffsets] = {}
    for entry in above.list():
        if entry.is_dir and parse_partition(entry.name) is not None:
            pairs = _pairs(above.child(entry.name))
            path = above.path_of(entry.name)
            try:
                found.update(_unseen(pairs))
            except CorruptError as error:
                raise error.at(path) from None
            except (struct.error, IndexError, UnicodeDecodeError) as error:
                what = f"a value of the key-value store is malformed: {error}"
                raise CorruptError(what, path) from None
    return found


def _unseen(pairs: dict[bytes, bytes]) -> Iterator[tuple[Placed, UnseenOffsets]]:
    for key, value in pairs.items():
        if key[0] != _PLACEMENT or len(key) != _PLACEMENT_KEY.size:
            continue
        _, what, group = _PLACEMENT_KEY.unpack(key)
        ranges = pairs.get(_GROUP_KEY.pack(_TRANSLATOR, _RANGES, group))
        highest = pairs.get(_GROUP_KEY.pack(_TRANSLATOR, _HIGHEST, group))
        if what == _CURRENT_STATE and ranges is not None and highest is not None:
            yield _placed(value), _ranges(ranges, *_INT64.unpack(highest))


def _placed(value: bytes) -> Placed:
    at, names = _ENVELOPE.size, []
    for _ in range(2):
        (size,) = _UINT32.unpack_from(value, at)
        at += _UINT32.size
        names.append(value[at : at + size].decode())
        at += size
    (partition,) = _INT32.unpack_from(value, at)
    (revision,) = _INT64.unpack_from(value, at + _INT32.size)
    return Placed(names[0], names[1], partition, revision)


def _ranges(value: bytes, highest: int) -> UnseenOffsets:
    at = _ENVELOPE.size
    (unseen,) = _INT64.unpack_from(value, at)
    (count,) = _UINT32.unpack_from(value, at + _INT64.size)
    at += _INT64.size + _UINT32.size
    ends: list[int] = []
    numbers: list[int] = []
    for number in range(count):
        base, length = _RANGE.unpack_from(value, at + number * _RANGE.size)
        unseen += length if number else 0
        ends.append(base + length - 1)
        numbers.append(unseen)
    if not ends or sorted(set(ends)) != ends or sorted(numbers) != numbers or numbers[0] < 0:
        raise CorruptError("the ranges of unseen offsets do not ascend")
    return UnseenOffsets(ends, numbers, max(highest, ends[-1]))


def _pairs(store: Directory) -> dict[bytes, bytes]:
    """Returns the pairs of a store."""
    pairs: dict[bytes, bytes] = {}
    following = _load_snapshot(store, pairs)
    names = [(parse_segment(name), name) for name in store.files()[0]]
    segments = sorted(
        (parsed, name)
        for parsed, name in names
        if parsed is not None and parsed.version == RECORD_VERSION
    )
    for _, name in segments:
        data, path = store.read_small(name, _MAX_BYTES), store.path_of(name)
        at = 0
        while at + _HEADER.size <= len(data) and any(data[at : at + _HEADER.size]):
            size = _check_batch(data, at, path)
            if size == 0:  # it is being written
                break
            base, count = _HEADER.unpack_from(data, at)[2], _HEADER.unpack_from(data, at)[12]
            try:
                for offset, key, value in _records(data, at + _HEADER.size, at + size, count):
                    if base + offset >= following:
                        _apply(pairs, key, value)
            except (struct.error, IndexError):
                raise CorruptError("a malformed record of the key-value store", path, at) from None
            at += size
    return pairs


def _apply(pairs: dict[bytes, bytes], key: bytes, value: bytes) -> None:
    """Applies a change: the value is int8 0 to remove the pair, or int8 1, int32 size and bytes."""
    if key[0] not in (_TRANSLATOR, _PLACEMENT):
        return
    if value[0] == 0:
        pairs.pop(key, None)
    else:
        pairs[key] = value[1 + _INT32.size :]


def _check_batch(data: bytes, at: int, path: str) -> int:
    """Returns the size of the batch at `at`, 0 if it is cut off. Raises CorruptError."""
    checksum, size, _, kind, crc, *covered = _HEADER.unpack_from(data, at)
    if crc32c(data[at + 4 : at + _HEADER.size]) != checksum or size < _HEADER.size:
        raise CorruptError("the header of a batch does not match its checksum", path, at)
    if at + size > len(data):
        return 0
    records = data[at + _HEADER.size : at + size]
    if crc32c(records, crc32c(_COVERED.pack(*covered))) != crc:
        raise CorruptError("a batch does not match its checksum", path, at)
    if kind != _KVSTORE_TYPE or covered[0] & 7:
        raise CorruptError(f"a batch of type {kind} in the key-value store", path, at)
    return int(size)


def _records(data: bytes, at: int, end: int, count: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields the offset delta, the key and the value of the records of a batch, as Kafka lays them
    out. Raises IndexError."""
    for _ in range(count):
        size, at = read_varlong(data, at)
        following = at + size
        _, inner = read_varlong(data, at + 1)
        offset, inner = read_varlong(data, inner)
        parts = []
        for _ in range(2):
            length, inner = read_varlong(data, inner)
            parts.append(data[inner : inner + max(length, 0)])
            inner += max(length, 0)
        if not at < inner <= following <= end or not parts[0] or not parts[1]:
            raise IndexError
        yield offset, parts[0], parts[1]
        at = following


def _load_snapshot(store: Directory, pairs: dict[bytes, bytes]) -> int:
    """Adds the pairs of the snapshot; returns the first offset after it, 0 if there is none."""
    path = store.path_of(SNAPSHOT_FILE)
    try:
        file = store.open(SNAPSHOT_FILE)
    except SegmentGone:
        return 0
    metadata, at = snapshot_parts(file, _INT64.size)
    size = file.size() - at
    if size > _MAX_BYTES:
        raise CorruptError(f"larger than {_MAX_BYTES} bytes, the limit for this file", path)
    data = file.read(at, size)
    try:
        _load_batch(data, pairs)
    except (struct.error, IndexError):
        raise CorruptError("a malformed batch of the key-value store", path, at) from None
    return int(_INT64.unpack_from(metadata)[0]) + 1


def _load_batch(data: bytes, pairs: dict[bytes, bytes]) -> None:
    """Adds the pairs of the batch in a snapshot: int32 size, the header, int64 term, int8 whether
    it is compressed, and the records with numbers of fixed size. Their checksum is that of Kafka's
    records."""
    checksum, *fields = _HEADER.unpack_from(data, _INT32.size)
    at = _INT32.size + _HEADER.size + _TERM.size
    if crc32c(_AFTER_CHECKSUM.pack(*fields)) != checksum or data[at - 1]:
        raise IndexError
    crc = crc32c(_COVERED.pack(*fields[4:]))
    for _ in range(fields[-1]):
        size, attributes, timestamp, offset = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        parts = []
        for _ in range(2):
            (length,) = _INT32.unpack_from(data, at)
            (stored,) = _UINT32.unpack_from(data, at + _INT32.size)
            at += _INT32.size + _UINT32.size
            parts.append((length, data[at : at + stored]))
            at += stored
        (headers,) = _INT32.unpack_from(data, at)
        at += _INT32.size
        if headers or at > len(data) or not parts[0][1]:
            raise IndexError
        crc = crc32c(_varint(size) + bytes([attributes & 0xFF]), crc)
        crc = crc32c(_varint(timestamp) + _varint(offset), crc)
        for length, part in parts:
            crc = crc32c(_varint(length) + part, crc)
        crc = crc32c(_varint(0), crc)
        if parts[0][1][0] in (_TRANSLATOR, _PLACEMENT):
            pairs[parts[0][1]] = parts[1][1]
    if crc != fields[3]:
        raise IndexError


def _varint(value: int) -> bytes:
    return unsigned_varint((value << 1) ^ (value >> 63))
