"""`.kafkafs/deleted/`: recent deletions that can be undone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Final

from kafkafs.storage import NEVER_MS, UNKNOWN_MS, Deletion, printable

from ..catalog import Catalog
from ..node import Attributes, DirectoryNode, DirEntryRun, directory_attributes, entries_of
from ..vfs import render
from ..vfs.errnos import NoSuchName, NotPermitted, Stale
from ..vfs.inodes import NUMBER_BITS, InodeKind, pack
from .small_files import ComputedFile

if TYPE_CHECKING:
    from ..writes.changes import Changes

# These files have hashes of their names as numbers, above the numbers of fixed names.
_FIRST_NUMBER: Final = 1 << (NUMBER_BITS - 1)


class DeletedDirectory(DirectoryNode):
    """A directory with a file for each deletion."""

    def __init__(self, catalog: Catalog, changes: Changes, inode: int, parent_inode: int) -> None:
        self._catalog = catalog
        self._changes = changes
        self.inode = inode
        self.parent_inode = parent_inode

    def attributes(self) -> Attributes:
        return directory_attributes(self.inode, self._catalog.started_ns)

    def child(self, name: str) -> ComputedFile:
        deletion = self._deletions().get(name)
        if deletion is None:
            raise NoSuchName(name, lambda: f"no deletion {name} can be undone now")
        return self._file(name, deletion)

    def child_may_block(self, name: str) -> bool:
        return True

    def readdir(self, start: int) -> Iterator[DirEntryRun]:
        files = ((name, self._file(name, each)) for name, each in self._deletions().items())
        return entries_of(files, start)

    def remove(self, name: str, pid: int) -> None:
        self.child(name)
        raise NotPermitted(
            f"{printable(name)} is removed when the deletion can no longer be undone"
        )

    def by_number(self, number: int) -> ComputedFile:
        """Returns the file with an inode's `number`. Raises Stale."""
        for name in self._deletions():
            if _number(name) == number:
                return self.child(name)
        raise Stale

    def _deletions(self) -> Mapping[str, Deletion]:
        """Deletions by file name, oldest first; the last one of topics with the same name."""
        return {name_of(each): each for each in self._changes.engine.deleted()}

    def _file(self, name: str, deletion: Deletion) -> ComputedFile:
        inode = pack(InodeKind.TOP, 0, _number(name))
        document = partial(self._document, deletion)
        is_known = deletion.deleted_at_ms != UNKNOWN_MS
        mtime_ns = deletion.deleted_at_ms * 1_000_000 if is_known else self._catalog.started_ns
        return ComputedFile(self._catalog.contents, inode, mtime_ns, document)

    def _document(self, deletion: Deletion) -> bytes:
        dirs = ",".join(each.path for each in self._catalog.engine.log_dirs.dirs)
        return render.status(
            {
                "what": _what(deletion),
                "why": str(deletion.cause),
                "when": _time(deletion.deleted_at_ms),
                "until": _time(deletion.until_ms, "it is purged"),
                "bringBack": f"kafkafs undelete {quote(dirs)} {quote(deletion.path)}",
                "deletion": deletion.as_json(),
            }
        )


def name_of(deletion: Deletion) -> str:
    """Returns `orders-0@600-1199.json`, or `orders@topic.json`. A topic's name has no `@`."""
    if deletion.partition < 0:
        return f"{deletion.topic}@topic.json"
    first, last = deletion.start_offset, deletion.end_offset - 1
    return f"{deletion.topic}-{deletion.partition}@{first}-{last}.json"


def _what(deletion: Deletion) -> str:
    if deletion.partition < 0:
        return f"topic {deletion.topic}, partitions {len(deletion.partitions)}"
    return f"{deletion.path}, offsets {deletion.start_offset} to {deletion.end_offset - 1}"


def _time(milliseconds: int, at_no_time: str = "") -> str | None:
    """Returns an ISO time; None if it is unknown, `at_no_time` if it never comes."""
    if milliseconds == UNKNOWN_MS:
        return None
    if milliseconds == NEVER_MS:
        return at_no_time
    when = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return when.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _number(name: str) -> int:
    import hashlib  # loads OpenSSL

    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return _FIRST_NUMBER | int.from_bytes(digest, "big") % _FIRST_NUMBER


def is_deleted_number(number: int) -> bool:
    """Returns whether a number of InodeKind.TOP belongs to one of these files."""
    return number >= _FIRST_NUMBER
