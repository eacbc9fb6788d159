"""Invalid UTF-8 is decoded to the same text as by the JVM."""

from __future__ import annotations

import itertools
import random
import struct
import subprocess
from collections.abc import Iterator

import pytest

from kafkafs.storage.format.primitives import decode_utf8
from tests.broker.jvm import installation, java

#: The bytes on both sides of every boundary between the rules of UTF-8.
EDGES = bytes.fromhex(
    "00 41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 f7 f8 ff"
)
#: Utf8.java writes this surrogate after each text.
END = "\ud800"


class Utf8:
    """A process that runs Utf8.java."""

    def __init__(self) -> None:
        command = java(installation(), "Utf8", log_level="off")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def texts(self, sequences: list[bytes]) -> list[str]:
        """Returns the result of `new String(bytes, UTF_8)` for each; all have the same length."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(struct.pack(">Bi", len(sequences[0]), len(sequences)))
        self.process.stdin.write(b"".join(sequences))
        self.process.stdin.flush()
        (size,) = struct.unpack(">i", self.process.stdout.read(4))
        text = self.process.stdout.read(size).decode("utf-16-be", "surrogatepass")
        *texts, rest = text.split(END)
        assert (len(texts), rest) == (len(sequences), "")
        return texts

    def differing(self, sequences: list[bytes]) -> list[tuple[str, str, str]]:
        """Returns the sequences, in hexadecimal, that are decoded differently, and both texts."""
        ours, theirs = list(map(decode_utf8, sequences)), self.texts(sequences)
        if ours == theirs:
            return []
        return [
            (each.hex(), our, their)
            for each, our, their in zip(sequences, ours, theirs, strict=True)
            if our != their
        ]


@pytest.fixture(scope="module")
def utf8() -> Iterator[Utf8]:
    found = Utf8()
    yield found
    found.process.communicate()


def pairs() -> list[bytes]:
    return [bytes(pair) for pair in itertools.product(range(256), repeat=2)]


def test_every_sequence_of_one_and_two_bytes(utf8: Utf8) -> None:
    assert decode_utf8(b"") == ""
    assert utf8.differing([bytes([first]) for first in range(256)]) == []
    assert utf8.differing(pairs()) == []


def test_every_sequence_of_three_bytes_that_begins_one_of_several(utf8: Utf8) -> None:
    """Also with ASCII or a stray continuation byte before them."""
    rests = pairs()
    for first in (0x41, 0x80, *range(0xC0, 0x100)):
        lead = bytes([first])
        assert utf8.differing([lead + rest for rest in rests]) == []
        if first in (0xE0, 0xED, 0xF0, 0xF4):
            rest = itertools.product(EDGES, repeat=3)
            assert utf8.differing([lead + bytes(each) for each in rest]) == []


def test_longer_sequences_of_bytes_at_the_boundaries(utf8: Utf8) -> None:
    chance = random.Random(7)
    for length in range(4, 13):
        many = bytes(chance.choices(EDGES, k=length * 33_000))
        sequences = [many[at : at + length] for at in range(0, len(many), length)]
        assert utf8.differing(sequences) == []
