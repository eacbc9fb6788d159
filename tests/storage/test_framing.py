"""Which schema a key or value names, record by record and as columns."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import DatumError
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.encoder import BatchPlan, encode
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.schemas.framed_columns import framed_rows, message_rows
from kafkafs.storage.schemas.framing import (
    UNFRAMED,
    Frame,
    Framing,
    datum_of,
    frame,
    read_message_indexes,
)
from kafkafs.storage.schemas.schema import SchemaType
from tests.columns import decoded

GUID = UUID("07b4fd29-566e-1170-b6cd-99c5871ad940")
PROTOBUF = SchemaType.PROTOBUF


def zigzag(*numbers: int) -> bytes:
    out = bytearray()
    for number in numbers:
        unsigned = (number << 1) ^ (number >> 31)
        while unsigned > 0x7F:
            out.append(unsigned & 0x7F | 0x80)
            unsigned >>= 7
        out.append(unsigned)
    return bytes(out)


def columns_of(records: Sequence[SimpleRecord]) -> Columns:
    (found,) = decoded(encode(RecordColumns.from_records(records), BatchPlan()).data)
    return found


class TestOneRecord:
    def test_confluent_prefix(self) -> None:
        found = frame(b"\0\0\0\0\x0cdatum")
        assert found == Frame(Framing.PREFIX, 12, start=5)
        assert datum_of(found, b"\0\0\0\0\x0cdatum", SchemaType.AVRO) == (b"datum", None)

    def test_an_id_is_unsigned(self) -> None:
        assert frame(b"\0\xf4\x13\x3cc").schema_id == 0xF4133C63

    @pytest.mark.parametrize("value", [None, b"", b"\0", b"\0\0\0\0", b"text", b"\x03\0abc"])
    def test_what_has_no_frame(self, value: bytes | None) -> None:
        assert frame(value) is UNFRAMED

    def test_confluent_header(self) -> None:
        header = ("__value_schema_id", b"\x01" + GUID.bytes)
        assert frame(b"datum", [header]) == Frame(Framing.HEADER, guid=GUID, in_header=b"")
        assert frame(b"datum", [header], is_key=True) is UNFRAMED
        as_key = ("__key_schema_id", b"\x01" + GUID.bytes)
        assert frame(b"datum", [as_key], is_key=True).guid == GUID

    def test_a_header_may_hold_an_id(self) -> None:
        found = frame(b"datum", [("__value_schema_id", b"\0\0\0\0\x07")])
        assert (found.framing, found.schema_id) == (Framing.HEADER, 7)

    def test_the_last_header_counts_and_precedes_the_prefix(self) -> None:
        headers = [("__value_schema_id", b"bad"), ("__value_schema_id", b"\0\0\0\0\x07")]
        assert frame(b"\0\0\0\0\x0cdatum", headers).schema_id == 7
        found = frame(b"\0\0\0\0\x0cdatum", headers[:1])
        assert found.fault == "the header __value_schema_id is neither 1 and a GUID nor 0 and an id"

    def test_glue(self) -> None:
        value = b"\x03\0" + GUID.bytes + b"datum"
        found = frame(value)
        assert found == Frame(Framing.GLUE, guid=GUID, start=18)
        assert datum_of(found, value, SchemaType.AVRO) == (b"datum", None)

    def test_glue_compressed(self) -> None:
        value = b"\x03\x05" + GUID.bytes + zlib.compress(b"datum" * 100)
        found = frame(value)
        assert found.is_compressed
        assert datum_of(found, value, SchemaType.JSON) == (b"datum" * 100, None)
        with pytest.raises(DatumError, match="its end is missing"):
            datum_of(found, value[:-3], SchemaType.JSON)
        with pytest.raises(DatumError, match="not compressed with zlib"):
            datum_of(found, value[:18] + b"nonsense", SchemaType.JSON)

    def test_what_glue_decompresses_to_is_bounded(self) -> None:
        value = b"\x03\x05" + GUID.bytes + zlib.compress(bytes((128 << 20) + 1), 1)
        with pytest.raises(DatumError, match="more than 128 MiB"):
            datum_of(frame(value), value, SchemaType.AVRO)

    def test_apicurio(self) -> None:
        found = frame(b"\0" + (5).to_bytes(8, "big") + b"datum")
        assert found == Frame(Framing.APICURIO, 5, start=9)
        for name in ("apicurio.value.globalId", "apicurio.value.contentId"):
            found = frame(b"datum", [(name, (9).to_bytes(8, "big"))])
            assert (found.framing, found.schema_id, found.start) == (
                Framing.APICURIO_HEADER,
                9,
                0,
            )
        found = frame(b"datum", [("apicurio.value.globalId", b"short")])
        assert found.fault == "the header apicurio.value.globalId has 5 bytes instead of 8"


class TestProtobufMessages:
    @pytest.mark.parametrize(
        ("data", "indexes"),
        [
            (b"\0", (0,)),
            (zigzag(1, 1), (1,)),
            (zigzag(3, 0, 1, 0), (0, 1, 0)),
            (zigzag(1, 70), (70,)),
        ],
    )
    def test_indexes(self, data: bytes, indexes: tuple[int, ...]) -> None:
        assert read_message_indexes(data + b"rest") == (indexes, len(data))

    @pytest.mark.parametrize(
        "data", [b"", zigzag(2, 1), zigzag(-1), zigzag(1, -1), zigzag(2**30, 0), b"\xff" * 9]
    )
    def test_wrong_indexes(self, data: bytes) -> None:
        with pytest.raises(DatumError):
            read_message_indexes(data)

    def test_in_a_header(self) -> None:
        found = frame(b"datum", [("__value_schema_id", b"\x01" + GUID.bytes + zigzag(2, 0, 2))])
        assert datum_of(found, b"datum", PROTOBUF) == (b"datum", (0, 2))

    def test_glue_names_a_position(self) -> None:
        value = b"\x03\0" + GUID.bytes + b"\x81\x01datum"
        assert datum_of(frame(value), value, PROTOBUF) == (b"datum", 129)

    def test_apicurio_names_the_message(self) -> None:
        value = b"\0" + (5).to_bytes(8, "big") + b"\x07\x0a\x05Orderdatum"
        assert datum_of(frame(value), value, PROTOBUF) == (b"datum", "Order")
        headers = [
            ("apicurio.value.globalId", (9).to_bytes(8, "big")),
            ("apicurio.value.msgType", b"Order"),
        ]
        assert datum_of(frame(b"datum", headers), b"datum", PROTOBUF) == (b"datum", "Order")
        value = b"\0" + (5).to_bytes(8, "big") + b"\x08\x01"
        assert datum_of(frame(value), value, PROTOBUF) == (b"\x08\x01", None)


VALUES = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.builds(lambda n, rest: b"\0" + n.to_bytes(4, "big") + rest, st.integers(0, 3), st.binary()),
    st.builds(
        lambda c, n, rest: bytes((3, c)) + bytes(15) + bytes((n,)) + rest,
        st.sampled_from((0, 1, 5)),
        st.integers(0, 2),
        st.binary(max_size=5),
    ),
)
NAMES = (
    "__value_schema_id",
    "__key_schema_id",
    "apicurio.value.globalId",
    "apicurio.value.contentId",
    "apicurio.value.msgType",
    "trace",
)
HEADER_VALUES = st.one_of(
    st.none(),
    st.sampled_from((b"\x01" + bytes(16), b"\x01" + GUID.bytes + b"\0", b"\0\0\0\0\x07", bytes(8))),
    st.binary(max_size=80),
)
RECORDS = st.lists(
    st.builds(
        SimpleRecord,
        key=VALUES,
        value=VALUES,
        headers=st.lists(st.tuples(st.sampled_from(NAMES), HEADER_VALUES), max_size=4),
    ),
    min_size=1,
    max_size=30,
)


@given(RECORDS, st.booleans())
def test_columns_have_the_frames_of_their_records(
    records: list[SimpleRecord], is_key: bool
) -> None:
    columns = columns_of(records)
    found: dict[int, Frame] = {}
    for group in framed_rows(columns, is_key=is_key):
        assert group.rows.tolist() == sorted(group.rows.tolist())
        for row in group.rows.tolist():
            assert row not in found
            found[row] = group.frame
    expected = {}
    for row in range(len(columns)):
        value = columns.key(row) if is_key else columns.value(row)
        if value is not None:
            expected[row] = frame(value, columns.headers(row), is_key=is_key)
    assert found == expected


@given(st.lists(st.one_of(st.binary(max_size=12), st.sampled_from((b"\0x", zigzag(2, 0, 2))))))
def test_columns_have_the_messages_of_their_records(tails: list[bytes]) -> None:
    if not tails:
        return
    columns = columns_of([SimpleRecord(value=b"\0\0\0\0\x01" + tail) for tail in tails])
    (group,) = framed_rows(columns)
    found = {}
    for each in message_rows(columns, group.rows, group.frame.start, is_key=False):
        for row in each.rows.tolist():
            found[row] = each
    assert sorted(found) == list(range(len(tails)))
    for row, tail in enumerate(tails):
        value = b"\0\0\0\0\x01" + tail
        if found[row].fault:
            with pytest.raises(DatumError, match=re.escape(found[row].fault)):
                datum_of(group.frame, value, PROTOBUF)
        else:
            expected = datum_of(group.frame, value, PROTOBUF)
            assert (value[found[row].start :], found[row].message) == expected
