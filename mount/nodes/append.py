"""`append` and `append.jsonl` on a writable mount: lines written to them become records."""

from __future__ import annotations

import stat
from functools import partial
from typing import TYPE_CHECKING, Final

from ..node import STREAM_BLOCK, AttributeChanges, Attributes, File
from ..partition import MountedPartition
from ..vfs.errnos import NotPermitted
from ..vfs.handles import Handle
from ..vfs.timeouts import BRIEFLY, NOT_AT_ALL
from .member import Member, changed_ns, member_inode

if TYPE_CHECKING:  # a read-only mount does not load the code that appends
    from kafkafs.storage import LineParser

    from ..writes.appending import AppendHandle
    from ..writes.changes import Changes

_MODE: Final = stat.S_IFREG | 0o200

#: In listing order, on a writable mount.
NAMES: Final = {"append": Member.APPEND, "append.jsonl": Member.APPEND_JSONL}
MEMBERS: Final = {member: name for name, member in NAMES.items()}


class AppendFile(File):
    """A write-only file. Each of any number of handles appends its lines in order."""

    def __init__(self, changes: Changes, partition: MountedPartition, member: Member) -> None:
        self._changes = changes
        self._partition = partition
        self._name = MEMBERS[member]
        self.inode = member_inode(partition, member)

    def attributes(self) -> Attributes:
        """The mtime is that of the last append. The block size is the amount cat writes at once."""
        return Attributes(
            self.inode,
            _MODE,
            0,
            changed_ns(self._partition),
            self._partition.entry_timeout(BRIEFLY),
            NOT_AT_ALL,
            STREAM_BLOCK,
        )

    def open(self, *, waits: bool = True) -> Handle:
        raise NotPermitted(f"{self._name} can only be written")

    def open_writing(self, flags: int) -> AppendHandle:
        from ..writes.appending import AppendHandle

        return AppendHandle(self._changes, self._partition, self._name, self._parse())

    def _parse(self) -> LineParser:
        from kafkafs.storage import parse_json, parse_keyed, parse_values

        if self._name == "append.jsonl":
            return parse_json
        separator = self._changes.options.key_separator
        if separator:
            return partial(parse_keyed, separator=separator)
        return parse_values

    def truncate(self, size: int) -> None:
        """Does nothing: a log cannot be truncated here."""

    def change_attributes(self, changes: AttributeChanges) -> None:
        """Does nothing: `cp -p` and `mv` set attributes on what they have written."""

    def sync(self) -> None:
        self._changes.sync(self._partition)
