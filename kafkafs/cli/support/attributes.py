"""Attributes of names in the tree, as `ls` and `stat` print them."""

from __future__ import annotations

import stat as modes
from typing import Any, Final

from kafkafs.mount.node import FixedFile, Link, MeasuredFile, Node
from kafkafs.mount.nodes.stream import FollowFile
from kafkafs.storage import bytes_as_json

# A stream's size is computed only if that is expected to take no longer than this.
_SIZE_SECONDS: Final = 1.0


def known_size(node: Node) -> int | None:
    """Returns the size of a file, None if it is endless or its size would take long to compute."""
    file = node.fixed()
    if isinstance(file, FollowFile) or (isinstance(file, FixedFile) and not file.is_made):
        return None
    if not isinstance(file, MeasuredFile):
        return file.attributes().size
    size = file.stream_size
    if size is not None and size.seconds_left() <= _SIZE_SECONDS:
        size.measure(_SIZE_SECONDS)
    return file.exact


def describe(node: Node, path: str) -> dict[str, Any]:
    """Returns the attributes as `stat --json` prints them."""
    found = node.attributes()
    facts: dict[str, Any] = {
        "path": path or "/",
        "kind": kind(found.mode),
        "mode": f"{modes.S_IMODE(found.mode):04o}",
        "size": known_size(node) if modes.S_ISREG(found.mode) else found.size,
        "mtime": found.mtime_ns // 1_000_000,
        "inode": str(found.inode),  # exceeds the 53 bits of a number in JavaScript and jq
    }
    if isinstance(node, Link):
        facts["target"] = node.target()
    facts["xattrs"] = {name: bytes_as_json(value) for name, value in node.xattrs().items()}
    return facts


def kind(mode: int) -> str:
    """Returns the file type of a mode as a word."""
    if modes.S_ISDIR(mode):
        return "directory"
    return "link" if modes.S_ISLNK(mode) else "file"
