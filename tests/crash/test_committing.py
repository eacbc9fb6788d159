"""SIGKILL amid transactions over several partitions: each is committed completely or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.moments import seeds
from tests.crash.program import tally_of


def test_transactions_are_all_or_nothing(memory_path: Path) -> None:
    found = tally_of("committing", memory_path, 12, 1)
    assert 0 < found["committed"] < found["written"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", seeds(2, every=2))
def test_eighty_kills_amid_commits(memory_path: Path, seed: int) -> None:
    found = tally_of("committing", memory_path, 80, seed)
    assert found["committed"] > 20  # how many there are before a kill depends on the machine
    assert found["written"] > found["committed"]
