"""Scratch files in memory behave as a model does, within their bounds."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafkafs.mount.vfs.errnos import Exists, NoSpace, NoSuchName, NotPermitted, Stale, TooLarge
from kafkafs.mount.writes.scratch import MAX_BYTES, MAX_FILE, MAX_FILES, ScratchFiles, ScratchHandle
from tests.profiles import percent

_TOPICS = st.integers(0, 2)
_NAMES = st.sampled_from(("a", "b", ".swp", "x~"))
_SIZES = st.integers(0, 70_000)


class Scratch(RuleBasedStateMachine):
    """A model of two dictionaries: names, and the bytes of files that are named or open."""

    def __init__(self) -> None:
        super().__init__()
        self.files = ScratchFiles()
        self.names: dict[tuple[int, str], int] = {}
        self.bytes: dict[int, bytearray] = {}
        self.handles: list[tuple[ScratchHandle, int]] = []

    @rule(topic=_TOPICS, name=_NAMES)
    def create(self, topic: int, name: str) -> None:
        if (topic, name) in self.names:
            with pytest.raises(Exists):
                self.files.create(topic, name)
            return
        inode = self.files.create(topic, name).inode
        assert inode not in self.bytes
        self.names[topic, name], self.bytes[inode] = inode, bytearray()

    @rule(topic=_TOPICS, name=_NAMES, appends=st.booleans())
    def open(self, topic: int, name: str, appends: bool) -> None:
        if (topic, name) not in self.names:
            with pytest.raises(NoSuchName):
                self.files.find(topic, name)
            return
        file = self.files.find(topic, name)
        assert file.inode == self.names[topic, name]
        self.handles.append((ScratchHandle(self.files, file, appends=False), file.inode))
        if appends:
            end = len(self.bytes[file.inode])
            handle = ScratchHandle(self.files, file, appends=True)
            handle.write(7, b"more")
            handle.close()
            self.bytes[file.inode][end:] = b"more"

    @rule(at=st.integers(0, 9), position=_SIZES, data=st.binary(max_size=50))
    def write(self, at: int, position: int, data: bytes) -> None:
        if self.handles:
            handle, inode = self.handles[at % len(self.handles)]
            assert handle.write(position, data) == len(data)
            kept = self.bytes[inode]
            kept.extend(bytes(max(0, position + len(data) - len(kept))))
            kept[position : position + len(data)] = data

    @rule(at=st.integers(0, 9), size=_SIZES)
    def truncate(self, at: int, size: int) -> None:
        if self.handles:
            handle, inode = self.handles[at % len(self.handles)]
            handle.truncate(size)
            kept = self.bytes[inode]
            kept[:] = kept[:size] + bytes(size - len(kept[:size]))

    @rule(at=st.integers(0, 9))
    def close(self, at: int) -> None:
        if self.handles:
            handle, inode = self.handles.pop(at % len(self.handles))
            handle.close()
            self._forget(inode)

    @rule(topic=_TOPICS, name=_NAMES)
    def remove(self, topic: int, name: str) -> None:
        if (topic, name) in self.names:
            self.files.remove(topic, name)
            self._forget(self.names.pop((topic, name)))

    @rule(topic=_TOPICS, name=_NAMES, new_topic=_TOPICS, new_name=_NAMES)
    def rename(self, topic: int, name: str, new_topic: int, new_name: str) -> None:
        if (topic, name) in self.names:
            self.files.rename(topic, name, new_topic, new_name)
            inode = self.names.pop((topic, name))
            replaced = self.names.get((new_topic, new_name))
            self.names[new_topic, new_name] = inode
            if replaced is not None:
                self._forget(replaced)

    def _forget(self, inode: int) -> None:
        """Drops a file that has no name and is not open."""
        named = inode in self.names.values()
        if not named and all(inode != of for _, of in self.handles):
            del self.bytes[inode]
            with pytest.raises(Stale):
                self.files.by_inode(inode)

    @invariant()
    def same(self) -> None:
        for topic in range(3):
            names = {name for of, name in self.names if of == topic}
            assert {name for name, _ in self.files.names(topic)} == names
        for inode, data in self.bytes.items():
            assert self.files.by_inode(inode).buffer.read() == data
        blocks = sum(max(len(data), 4096) for data in self.bytes.values())
        assert self.files._used == blocks


TestScratch = Scratch.TestCase
TestScratch.settings = settings(max_examples=percent(30), stateful_step_count=30)


def test_bounds() -> None:
    files = ScratchFiles()
    for number in range(MAX_FILES):
        files.create(1, f"f{number}")
    with pytest.raises(NoSpace, match="32 scratch files"):
        files.create(1, "more")
    file = files.create(2, "large")
    with pytest.raises(TooLarge):
        files.truncate(file, MAX_FILE + 1)
    with pytest.raises(TooLarge):
        files.write(file, 1 << 62, b"x")
    for number in range(MAX_BYTES // MAX_FILE - 1):
        files.truncate(files.create(3, f"f{number}"), MAX_FILE)
    with pytest.raises(NoSpace):
        files.truncate(file, MAX_FILE)
    assert files.read(file, 0, 10) == b""
    files.remove(3, "f0")
    files.truncate(file, MAX_FILE)
    with pytest.raises(NotPermitted):
        files.rename(1, "f0", 1, "0")
