"""SIGKILL at random moments of appends, rolls, retention, checkpoints, and of recovery itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.moments import seeds
from tests.crash.program import tally_of


def test_nothing_is_lost_or_invented(memory_path: Path) -> None:
    tally = tally_of("killing", memory_path, 8, 1)
    assert tally["killed"] == 8
    assert tally["opened"] >= 2


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", seeds(4, every=4))
def test_a_quarter_of_a_thousand_kills(memory_path: Path, seed: int) -> None:
    tally = tally_of("killing", memory_path, 250, seed)
    assert tally["killed"] == 250
    assert tally["killed while opening"] >= 20
    assert tally["opened"] >= 100
