"""Damages a segment's index files in every possible way."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

LAYOUTS = {".index": struct.Struct(">ii"), ".timeindex": struct.Struct(">qi")}

# Kinds of damage, each with a number that parametrizes it.
INDEX_DAMAGE = st.lists(
    st.tuples(
        st.integers(0, 7),  # which of the index files
        st.sampled_from(
            [
                "remove", "empty", "truncate", "pad", "pad much", "random", "other", "shift first",
                "shift second", "reverse", "twice", "drop", "flip", "ones", "directory", "fifo",
                "symlink",
            ]
        ),
        st.integers(0, 1 << 30),
    ),
    max_size=8,
)  # fmt: skip


def damage_indexes(directory: Path, damage: list[tuple[int, str, int]]) -> None:
    """Damages index files of the partition in `directory`, as drawn from INDEX_DAMAGE."""
    for which, what, how in damage:
        files = sorted(path for path in directory.iterdir() if path.suffix in LAYOUTS)
        files = [path for path in files if path.is_file() and not path.is_symlink()]
        if files:
            path = files[which % len(files)]
            _DAMAGE[what](path, how, files)


def _entries(path: Path) -> list[tuple[int, int]]:
    layout = LAYOUTS[path.suffix]
    data = path.read_bytes()[: 1 << 20]
    return list(layout.iter_unpack(data[: len(data) // layout.size * layout.size]))


def _write(path: Path, entries: list[tuple[int, int]]) -> None:
    layout = LAYOUTS[path.suffix]
    bits = 64 if path.suffix == ".timeindex" else 32
    wrapped = [(_wrap(first, bits), _wrap(second, 32)) for first, second in entries]
    path.write_bytes(b"".join(layout.pack(*entry) for entry in wrapped))


def _wrap(number: int, bits: int) -> int:
    return (number + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def _random(path: Path, how: int) -> None:
    path.write_bytes(random.Random(how).randbytes(how % 400))


def _shift(path: Path, by: tuple[int, int]) -> None:
    _write(path, [(first + by[0], second + by[1]) for first, second in _entries(path)])


def _steps(how: int) -> int:
    return (-100, -7, -1, 1, 2, 3, 10, 61, 1000)[how % 9]


def _flip(path: Path, how: int) -> None:
    data = bytearray(path.read_bytes()[:4096])
    if data:
        data[how % len(data)] ^= 1 << (how // 7 % 8)
        path.write_bytes(data)


def _replaced(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


_DAMAGE: dict[str, Callable[[Path, int, list[Path]], object]] = {
    "remove": lambda path, how, files: path.unlink(),
    "empty": lambda path, how, files: path.write_bytes(b""),
    "truncate": lambda path, how, files: os.truncate(path, how % (path.stat().st_size + 1)),
    "pad": lambda path, how, files: os.truncate(path, path.stat().st_size + how % 100),
    "pad much": lambda path, how, files: os.truncate(path, 10 << 20),
    "random": lambda path, how, files: _random(path, how),
    "other": lambda path, how, files: path.write_bytes(
        files[how % len(files)].read_bytes()[: 1 << 16]
    ),
    "shift first": lambda path, how, files: _shift(path, (_steps(how), 0)),
    "shift second": lambda path, how, files: _shift(path, (0, _steps(how))),
    "reverse": lambda path, how, files: _write(path, _entries(path)[::-1]),
    "twice": lambda path, how, files: _write(path, _entries(path) * 2),
    "drop": lambda path, how, files: _write(
        path, [entry for n, entry in enumerate(_entries(path)) if how >> (n % 30) & 1]
    ),
    "flip": lambda path, how, files: _flip(path, how),
    "ones": lambda path, how, files: path.write_bytes(b"\xff" * (how % 200)),
    "directory": lambda path, how, files: _replaced(path, Path.mkdir),
    "fifo": lambda path, how, files: _replaced(path, os.mkfifo),
    "symlink": lambda path, how, files: _replaced(path, lambda p: p.symlink_to("/dev/zero")),
}
