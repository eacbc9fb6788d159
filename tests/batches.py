"""Hypothesis strategies for records, batches and damaged bytes, used by many tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from kafkafs.storage.format.layout import Codec, TimestampType
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import BatchFields, MessageFields, build_batch, build_messages

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
#: Timestamps that producers send, some of them equal, negative or absurd.
TIMESTAMPS = st.one_of(
    st.integers(1_700_000_000_000, 1_700_000_100_000), st.integers(-1, 5), st.just((1 << 62) - 1)
)
BYTES = st.one_of(
    st.none(), st.binary(max_size=12), st.text(max_size=8).map(str.encode), st.binary(max_size=200)
)
NAMES = st.one_of(st.text(max_size=6), st.binary(max_size=6))
HEADERS = st.lists(st.tuples(NAMES, BYTES), max_size=3)
LEGACY_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


@st.composite
def simple_records(
    draw: st.DrawFn, first: int = 0, min_size: int = 1, max_size: int = 6, *, gaps: bool = True
) -> list[SimpleRecord]:
    """Draws records at ascending offsets from `first` on, with gaps as compaction leaves them."""
    steps = st.integers(0, 3) if gaps else st.just(0)
    count = draw(st.integers(min_size, max_size))
    records = []
    offset = first
    for _ in range(count):
        offset += draw(steps)
        record = SimpleRecord(
            draw(TIMESTAMPS), draw(BYTES), draw(BYTES), draw(HEADERS), offset=offset
        )
        records.append(record)
        offset += 1
    return records


@st.composite
def v2_batches(draw: st.DrawFn, base_offset: int = 0) -> tuple[bytes, list[SimpleRecord]]:
    """Draws a batch of magic 2 from `base_offset` on, and its records; sometimes there are none."""
    records = draw(simple_records(base_offset, min_size=0))
    last = records[-1].offset if records else base_offset
    appended = draw(st.booleans())
    fields = BatchFields(
        base_offset=base_offset,
        last_offset=last + draw(st.integers(0, 2)),
        leader_epoch=draw(st.integers(-1, 100)),
        codec=draw(st.sampled_from(Codec)) if records else Codec.NONE,
        timestamp_type=TimestampType(int(appended)),
        producer_id=draw(st.integers(-1, 1000)),
        base_sequence=draw(st.integers(-1, 1000)),
        max_timestamp=draw(TIMESTAMPS) if appended else None,
    )
    return build_batch(records, fields), records


@st.composite
def legacy_batches(draw: st.DrawFn, base_offset: int = 0) -> tuple[bytes, list[SimpleRecord]]:
    """Draws messages of magic 0 or 1, single or in a wrapper, from `base_offset` on; and their
    records."""
    magic = draw(st.integers(0, 1))
    records = [
        SimpleRecord(record.timestamp, record.key, record.value, offset=record.offset)
        for record in draw(simple_records(base_offset))
    ]
    fields = MessageFields(
        magic=magic,
        base_offset=base_offset,
        codec=draw(st.sampled_from(LEGACY_CODECS)),
        log_append_time=draw(st.sampled_from([-1, 1_700_000_000_000])) if magic else -1,
    )
    return build_messages(records, fields), records


def any_batches(base_offset: int = 0) -> st.SearchStrategy[tuple[bytes, list[SimpleRecord]]]:
    """Draws a batch of any magic and codec."""
    return st.one_of(v2_batches(base_offset), legacy_batches(base_offset))


@st.composite
def logs(draw: st.DrawFn, max_batches: int = 6) -> bytes:
    """Draws concatenated whole batches of any magic, with ascending offsets."""
    out = b""
    offset = draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(0, max_batches))):
        batch, records = draw(any_batches(offset))
        out += batch
        offset = max([offset, *(record.offset for record in records)]) + 4
    return out


#: Changes to bytes: (kind, position, how), the latter two as numbers to be scaled.
MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "set", "zero", "cut", "insert", "copy", "number"]),
        st.integers(0, 1 << 30),
        st.integers(0, 1 << 30),
    ),
    min_size=1,
    max_size=4,
)
_NUMBERS = (0, 1, -1, 0x7F, 0x80, 0x7FFFFFFF, -0x80000000, 0x7FFFFFFFFFFFFFFF, -(1 << 63))


def mutated(data: bytes, mutations: Sequence[tuple[str, int, int]]) -> bytes:
    """Returns `data` with changes such as disks, crashes and attackers make."""
    changed = bytearray(data)
    for what, where, how in mutations:
        if changed:
            _CHANGES[what](changed, where % len(changed), how)
    return bytes(changed)


def _flip(data: bytearray, at: int, how: int) -> None:
    data[at] ^= 1 << (how % 8)


def _set(data: bytearray, at: int, how: int) -> None:
    data[at] = how % 256


def _zero(data: bytearray, at: int, how: int) -> None:
    end = min(at + how % 64, len(data))
    data[at:end] = bytes(end - at)


def _cut(data: bytearray, at: int, how: int) -> None:
    del data[at : at + how % 64]


def _insert(data: bytearray, at: int, how: int) -> None:
    data[at:at] = how.to_bytes(4, "little") * (how % 8)


def _copy(data: bytearray, at: int, how: int) -> None:
    source = how % len(data)
    data[at:at] = data[source : source + 64]


def _number(data: bytearray, at: int, how: int) -> None:
    number = _NUMBERS[how % len(_NUMBERS)]
    encoded = number.to_bytes(8, "big", signed=True)[8 - (4 if how & 1 else 8) :]
    data[at : at + len(encoded)] = encoded


_CHANGES: dict[str, Callable[[bytearray, int, int], None]] = {
    "flip": _flip,
    "set": _set,
    "zero": _zero,
    "cut": _cut,
    "insert": _insert,
    "copy": _copy,
    "number": _number,
}


@st.composite
def damaged_logs(draw: st.DrawFn) -> bytes:
    """Draws a log with damage, or bytes that never were a log."""
    sound = draw(logs())
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    return mutated(sound, draw(MUTATIONS))
