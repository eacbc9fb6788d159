"""Tests retries of a read while a broker removes files."""

from __future__ import annotations

import pytest

from kafkafs.storage.errors import SegmentGone
from kafkafs.storage.io.retry import ATTEMPTS, VANISHED, retry_if_gone


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records the sleeps between retries; they take no time."""
    made: list[float] = []
    monkeypatch.setattr("kafkafs.storage.io.retry.time.sleep", made.append)
    return made


class Vanishing:
    """A read of a log that raises SegmentGone once for each of `files`, then succeeds."""

    def __init__(self, *files: str) -> None:
        self.files = list(files)
        self.looks = 0

    def __call__(self) -> int:
        self.looks += 1
        if self.files:
            raise SegmentGone(self.files.pop(0))
        return self.looks


def test_retention_that_deletes_one_segment_after_the_other(pauses: list[float]) -> None:
    """Each attempt misses another file, which counts as progress, however many there are."""
    segments = [f"{number}.log" for number in range(VANISHED - 1)]
    assert retry_if_gone(Vanishing(*segments)) == VANISHED
    assert pauses[:4] == [0.002, 0.004, 0.008, 0.016]
    assert 5 < sum(pauses) < 7


def test_a_file_that_is_swapped_again_and_again() -> None:
    assert retry_if_gone(Vanishing(*["0.log"] * (ATTEMPTS - 1))) == ATTEMPTS


@pytest.mark.parametrize(
    ("files", "looks"),
    [
        (["0.log"] * VANISHED, ATTEMPTS),
        ([f"{number}.log" for number in range(2 * VANISHED)], VANISHED),
        (["0.log", "1.log"] * VANISHED, 2 * ATTEMPTS - 1),
    ],
)
def test_what_never_ends_is_an_error(files: list[str], looks: int) -> None:
    look = Vanishing(*files)
    with pytest.raises(SegmentGone, match=r"\.log: the file was removed"):
        retry_if_gone(look)
    assert look.looks == looks
