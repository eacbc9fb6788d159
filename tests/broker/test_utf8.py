"""Invalid UTF-8 is decoded to the same text as by the JVM."""

from __future__ import annotations

import itertools
import random
import subprocess
from collections.abc import Iterable, Iterator

from kafkafs.storage.format.primitives import decode_utf8
from tests.broker.jvm import installation, java

#: The bytes on both sides of every boundary between the rules of UTF-8.
EDGES = bytes.fromhex(
    "00 41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 f7 f8 ff"
)


def decoded_by_java(sequences: list[bytes]) -> Iterator[str]:
    """Returns the result of `new String(bytes, UTF_8)` for each."""
    done = subprocess.run(
        java(installation(), "Utf8", log_level="off"),
        input=b"".join(bytes([len(each)]) + each for each in sequences),
        check=True,
        capture_output=True,
    )
    position = 0
    for _ in sequences:
        end = position + 1 + 2 * done.stdout[position]
        yield done.stdout[position + 1 : end].decode("utf-16-be", "surrogatepass")
        position = end
    assert position == len(done.stdout)


def differing(sequences: Iterable[bytes]) -> list[tuple[str, str, str]]:
    """Returns the sequences, in hexadecimal, that are decoded differently, and both texts."""
    asked = list(sequences)
    answers = decoded_by_java(asked)
    return [
        (each.hex(), decode_utf8(each), answer)
        for each, answer in zip(asked, answers, strict=True)
        if decode_utf8(each) != answer
    ]


def test_every_sequence_of_one_and_two_bytes() -> None:
    ones = (bytes([first]) for first in range(256))
    twos = (bytes(pair) for pair in itertools.product(range(256), repeat=2))
    assert differing(itertools.chain([b""], ones, twos)) == []


def test_every_sequence_of_three_bytes_that_begins_one_of_several() -> None:
    """Also with ASCII or a stray continuation byte before them."""
    leads = [0x41, 0x80, *range(0xC0, 0x100)]
    for lead in leads:
        assert (
            differing(bytes([lead, *rest]) for rest in itertools.product(range(256), repeat=2))
            == []
        )
        if lead in (0xE0, 0xED, 0xF0, 0xF4):
            sequences = (bytes(each) for each in itertools.product([lead], EDGES, EDGES, EDGES))
            assert differing(sequences) == []


def test_longer_sequences_of_bytes_at_the_boundaries() -> None:
    chance = random.Random(7)
    sequences = [bytes(chance.choices(EDGES, k=chance.randint(4, 12))) for _ in range(300_000)]
    assert differing(sequences) == []
