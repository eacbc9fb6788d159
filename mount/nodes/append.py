"""`append` and `append.jsonl` on a writable mount: what is written to them becomes records."""

from __future__ import annotations

import stat
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkafs.storage.format.text_input import Parse

from ..changing.changes import Changes
from ..errnos import Forbidden
from ..handles import Handle
from ..lifetimes import BRIEFLY, NOT_AT_ALL
from ..partition import Partition
from .member import Member, changed_ns, member_inode
from .node import STREAM_BLOCK, AttributeChanges, Attributes, File

if TYPE_CHECKING:  # no mount that only reads loads what appends
    from ..changing.appending import AppendHandle

_MODE: Final = stat.S_IFREG | 0o200

#: In the order in which they are listed, on a writable mount.
NAMES: Final = {"append": Member.APPEND, "append.jsonl": Member.APPEND_JSONL}
MEMBERS: Final = {member: name for name, member in NAMES.items()}


class AppendFile(File):
    """Any number of handles, each of which appends the lines written to it in their order."""

    def __init__(self, changes: Changes, partition: Partition, member: Member) -> None:
        self._changes = changes
        self._partition = partition
        self._name = MEMBERS[member]
        self.inode = member_inode(partition, member)

    def attributes(self) -> Attributes:
        """The time is that of the last append. cat writes as much at a time as a block has."""
        return Attributes(
            self.inode,
            _MODE,
            0,
            changed_ns(self._partition),
            self._partition.lifetime(BRIEFLY),
            NOT_AT_ALL,
            STREAM_BLOCK,
        )

    def open(self, *, waits: bool = True) -> Handle:
        raise Forbidden(f"{self._name} can only be written")

    def open_writing(self, flags: int) -> AppendHandle:
        from ..changing.appending import AppendHandle

        return AppendHandle(self._changes, self._partition, self._name, self._parse())

    def _parse(self) -> Parse:
        from kafkafs.storage.format import json_input, text_input

        if self._name == "append.jsonl":
            return json_input.parse_json
        separator = self._changes.options.key_separator
        if separator:
            return partial(text_input.parse_keyed, separator=separator)
        return text_input.parse_values

    def truncate(self, size: int) -> None:
        """Takes nothing away from a log."""

    def change_attributes(self, changes: AttributeChanges) -> None:
        """`cp -p` and `mv` give what they have written the attributes of what they read."""

    def sync(self) -> None:
        self._changes.sync(self._partition)
