"""Arbitrary and damaged bytes for every parser of bytes on disk."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.compress import compress
from tests.batches import MUTATIONS, damaged_logs, mutated
from tests.fuzz import targets

ANY_BYTES = st.binary(max_size=400)


@given(st.one_of(ANY_BYTES, damaged_logs()))
def test_batches(data: bytes) -> None:
    targets.batches(data)


@given(st.one_of(ANY_BYTES, damaged_logs()))
def test_sent(data: bytes) -> None:
    targets.sent(data)


@given(st.sampled_from([c for c in Codec if c]), ANY_BYTES, MUTATIONS, st.integers(0, 255))
def test_payloads(
    codec: Codec, data: bytes, mutations: Sequence[tuple[str, int, int]], first: int
) -> None:
    targets.payload(bytes([first]) + mutated(compress(codec, data), mutations))
    targets.payload(bytes([first]) + data)


CHECKPOINT = b"0\n2\norders 0 17\na.b-c 3 99\n"
SNAPSHOT = bytes.fromhex(
    "0001fdf77d280000000100000000000003e8000200000009000000000000003200000004"
    "0000018bcfe5680000000005000000000000002c"
)
PROPERTIES = b"#\n#Tue May 15\nnode.id=1\nversion=1\ncluster.id=a2Fma2Fmcy10ZXN0cy4uLg\n"


@given(
    st.sampled_from(
        [
            CHECKPOINT,
            SNAPSHOT,
            PROPERTIES,
            b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
            b"# settings\n[orders]\nretention.ms = 5\ncleanup.policy = compact,delete\n",
            b"0\n4611686018427387905 7 orders 0\n4611686018427387905 7 orders 1\n",
            b'{"key":"k","value":{"base64":"/w=="},"headers":[{"key":"h","value":null}]}\n',
        ]
    ),
    MUTATIONS,
    ANY_BYTES,
)
def test_small_files(sound: bytes, mutations: Sequence[tuple[str, int, int]], data: bytes) -> None:
    targets.small_file(sound)
    targets.small_file(mutated(sound, mutations))
    targets.small_file(data)
