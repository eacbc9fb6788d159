"""Converts the attributes of the tree's nodes to pyfuse3's EntryAttributes."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import Final

import pyfuse3

from ..node import FILE_MODE, Attributes, DirEntryRun
from ..nodes.record import RecordFile
from ..vfs.timeouts import FOR_EVER

#: The unit of st_blocks.
SECTOR: Final = 512


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of all files of a mount. `writable`: whether the owner may change directories."""

    writable: bool = False
    uid: int = field(default_factory=os.getuid)
    gid: int = field(default_factory=os.getgid)
    _record: pyfuse3.EntryAttributes = field(init=False)

    def __post_init__(self) -> None:
        record = Attributes(0, FILE_MODE, 0, 0, FOR_EVER, FOR_EVER)
        object.__setattr__(self, "_record", self.entry(record))

    def entry(self, attributes: Attributes) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = pyfuse3.InodeT(attributes.inode)
        entry.st_mode = self._mode(attributes.mode)
        entry.st_size = attributes.size
        entry.st_blocks = -(-attributes.size // SECTOR)
        entry.st_blksize = attributes.block_size
        entry.st_mtime_ns = attributes.mtime_ns
        entry.generation = attributes.generation
        entry.entry_timeout = attributes.entry_timeout
        entry.attr_timeout = attributes.attr_timeout
        entry.st_uid = self.uid
        entry.st_gid = self.gid
        return entry

    def _mode(self, mode: int) -> pyfuse3.ModeT:
        changeable = self.writable and stat.S_ISDIR(mode)
        return pyfuse3.ModeT(mode | stat.S_IWUSR if changeable else mode)

    def record_entry(self, record: RecordFile) -> pyfuse3.EntryAttributes:
        """Returns the same for a record's file. The object is reused by the next call: pyfuse3 has
        copied it by then."""
        entry = self._record
        entry.st_ino = pyfuse3.InodeT(record.inode)
        entry.st_size = size = record.size
        entry.st_blocks = -(-size // SECTOR)
        entry.st_mtime_ns = record.mtime_ns
        entry.entry_timeout = record.entry_timeout
        return entry

    def set_shared(self, entry: pyfuse3.EntryAttributes, run: DirEntryRun) -> None:
        """Sets in `entry` what all entries of `run` have in common."""
        entry.st_mode = self._mode(run.mode)
        entry.st_blksize = run.block_size
        entry.generation = run.generation
        entry.entry_timeout = run.entry_timeout
        entry.attr_timeout = run.attr_timeout
