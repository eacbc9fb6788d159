"""Skips what was proven before: a build of the kernels that passed with the same sources.

The proof is a file in build/, so a fresh clone builds everything. `tests/run.sh --all` deletes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


class Proof:
    """The note in build/ that a build passed with this content of `files` and these `names`."""

    def __init__(self, name: str, files: Iterable[Path], names: Iterable[str] = ()) -> None:
        self._path = ROOT / "build" / f"proven-{name}"
        self._state = _digest(files, names)

    def skip_if_known(self) -> None:
        """Skips the test that runs if the note is there."""
        if self._path.exists() and self._path.read_text(encoding="ascii") == self._state:
            pytest.skip(f"passed with the same sources before; to repeat it, delete {self._path}")

    def note(self) -> None:
        """Writes the note."""
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(self._state, encoding="ascii")


def _digest(files: Iterable[Path], names: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    for name in sorted(names):
        digest.update(f"{name}\n".encode())
    return digest.hexdigest()
