"""Names of keys: every key has one that the kernel accepts, and it leads back to the key."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkafs.mount.vfs.errnos import NoSuchName
from kafkafs.mount.vfs.key_names import MAX_NAME, MIN_CUT_BYTES, CutKeys, CutName, key_of, name_of

ODD = st.lists(st.sampled_from([b"%", b"/", b".", b"~", b"\0", b"a", b"\xff", "ü€".encode()]))
KEYS = st.one_of(st.binary(max_size=400), ODD.map(b"".join), st.text(max_size=200).map(str.encode))


@given(KEYS)
@example(b"")
@example(b".")
@example(b"..")
@example(b"%~" + b"0" * 64)
@example(b"\xff" * 86)
@example(b"a" * 254 + b"%")
def test_a_name_leads_back_to_its_key(key: bytes) -> None:
    name = name_of(key)
    assert 0 < len(name) <= MAX_NAME
    assert name not in (b".", b"..")
    assert not set(name) & {*range(32), 127, ord("/")}
    assert name.decode("utf-8")
    found = key_of(name)
    if isinstance(found, CutName):
        assert len(key) >= MIN_CUT_BYTES
        assert found.is_of(key)
        assert not found.is_of(key + b"x")
    else:
        assert found == key


@given(st.lists(KEYS, unique=True))
def test_no_two_keys_share_a_name(keys: list[bytes]) -> None:
    assert len(set(map(name_of, keys))) == len(keys)


@given(KEYS)
def test_any_byte_may_be_escaped(key: bytes) -> None:
    if key:
        assert key_of(b"".join(b"%%%02x" % byte for byte in key)) == key


@pytest.mark.parametrize("name", [b"%g0", b"a%", b"%4", b"%%", b"%~", b"%~" + b"0" * 63])
def test_what_is_no_escape_is_no_name(name: bytes) -> None:
    with pytest.raises(NoSuchName):
        key_of(name)


def test_a_cut_name_ends_with_the_hash() -> None:
    key = b"k" * 1000
    assert name_of(key) == b"k" * 189 + b"%~" + hashlib.sha256(key).hexdigest().encode()


def test_the_keys_of_cut_names_are_remembered_up_to_a_bound() -> None:
    keys, remembered = CutKeys(), 16384
    names = [name_of(b"%0300d" % at) for at in range(remembered + 10)]
    for offset, name in enumerate(names):
        keys.note(name, offset)
    keys.note(b"short", 1)
    found = [key_of(name) for name in names]
    offsets = [keys.offset_of(name) for name in found if isinstance(name, CutName)]
    assert offsets == [-1] * 10 + list(range(10, remembered + 10))
