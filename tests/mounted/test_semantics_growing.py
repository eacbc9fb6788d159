"""The promises of SEMANTICS.md about directories that grow while they are listed."""

from __future__ import annotations

import ctypes
import json
import os
from itertools import count, islice
from pathlib import Path

from kafkafs.storage.log_manager import LogManager
from tests.mounted.conftest import Mounting
from tests.mounted.promises import promise

_LIBC = ctypes.CDLL(None, use_errno=True)
_DIRECTORIES = ("offset", "time", "key", "segments", "dump", "compacted/offset", "compacted/latest")
# One segment per record, so that all directories grow.
_SETTINGS = {"segment.ms": "1", "retention.ms": "-1", "index.interval.bytes": "0"}
_FIRST, _MORE = 50, 40


class Listing:
    """A directory read with a small buffer, so that the listing is resumed again and again."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self.names: list[str] = []
        self.goes_on = True

    def read_some(self) -> None:
        buffer = ctypes.create_string_buffer(1024)
        size = _LIBC.getdents64(self._fd, buffer, len(buffer))
        assert size >= 0, os.strerror(ctypes.get_errno())
        self.goes_on, at = size > 0, 0
        while at < size:  # struct linux_dirent64
            length = int.from_bytes(buffer.raw[at + 16 : at + 18], "little")
            self.names.append(buffer.raw[at + 19 : at + length].split(b"\0")[0].decode())
            at += length

    def rewind(self) -> None:
        os.lseek(self._fd, 0, os.SEEK_SET)
        self.names, self.goes_on = [], True

    def close(self) -> None:
        os.close(self._fd)


@promise(
    "A listing ends with what existed when it began, in `time`, `segments`, `dump`, `key` and"
    " `compacted`, too, however fast the directory grows meanwhile."
)
def test_a_listing_of_what_grows_ends(tmp_path: Path, mount: Mounting) -> None:
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t", 1, _SETTINGS)
    partition = mount(tmp_path / "data", "writable").point / "t/0"
    offsets = count()

    def grow(more: int) -> None:
        filling = "x" * 10_000
        lines = [
            {"key": str(n), "value": filling, "timestamp": 10**12 + 10 * n}
            for n in islice(offsets, more)
        ]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (partition / "append.jsonl").write_bytes(text.encode())

    grow(_FIRST)
    there = {name: set(os.listdir(partition / name)) for name in _DIRECTORIES}
    listings = {name: Listing(partition / name) for name in _DIRECTORIES}
    for _ in range(30):
        for listing in listings.values():
            if listing.goes_on:
                listing.read_some()
        if not any(listing.goes_on for listing in listings.values()):
            break
        grow(_MORE)
    for name, listing in listings.items():
        found = set(listing.names) - {".", ".."}
        assert not listing.goes_on, f"the listing of {name} does not end"
        assert found == there[name], name
        assert len(found) >= _FIRST - 1, name
    offset = listings["offset"]
    offset.rewind()
    while offset.goes_on:
        offset.read_some()
    assert len(offset.names) == next(offsets) + len([".", "..", "first", "last"])
    for listing in listings.values():
        listing.close()
