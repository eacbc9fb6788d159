"""`kafkafs stat`: prints attributes and extended attributes of files."""

from __future__ import annotations

import stat as modes
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from ..support.params import (
    Config,
    json_option,
    log_dirs_argument,
    paths_argument,
    reading_options,
)
from ..support.verb import Verb

if TYPE_CHECKING:
    from kafkafs.mount.node import Node

# A stream's size is computed only if that is expected to take no longer than this.
_SIZE_SECONDS: Final = 1.0


@click.command(
    cls=Verb,
    short_help="Print a file's size, time, key, headers and batch.",
    examples=[
        (
            "kafkafs stat /data orders/0/offset/600",
            "print a record's size, time, key, headers and batch",
        ),
        (
            "kafkafs stat -L /data orders/0/offset/last",
            "print those of the record that a link points to",
        ),
        (
            "kafkafs stat --json /data orders/0/offset/600 | jq -r '.xattrs[\"user.kafka.codec\"]'",
            "print the compression codec of its batch",
        ),
    ],
)
@log_dirs_argument
@paths_argument(required=False)
@click.option("-L", "--dereference", is_flag=True, help="Follow links.")
@reading_options
@json_option("one JSON object per PATH, one per line; times are in ms since 1970")
def command(
    log_dirs: tuple[str, ...],
    paths: tuple[str, ...],
    dereference: bool,
    configs: tuple[Config, ...],
    isolation: str,
    as_json: bool,
) -> int:
    """Print the attributes and extended attributes of each PATH (default: the root of the tree).

    Values that are not UTF-8 are printed as 0x and hexadecimal digits, in JSON as
    {"base64": "…"}.
    """
    from ..support.opening import for_each, open_tree, resolve
    from ..support.output import binary, json_line, line

    tree = open_tree(log_dirs, configs, isolation)
    out = binary()

    def print_attributes(path: str) -> None:
        node = resolve(tree, path) if dereference else tree.resolve(path)
        facts = describe(node, path)
        if as_json:
            out.write(json_line(facts))
        else:
            out.writelines(line(text) for text in _lines(facts, node.xattrs()))

    return for_each(paths or ("",), print_attributes)


def known_size(node: Node) -> int | None:
    """Returns the size of a file, None if it is endless or its size would take long to compute."""
    from kafkafs.mount.node import MeasuredFile
    from kafkafs.mount.nodes.stream import FollowFile

    file = node.fixed()
    if isinstance(file, FollowFile):
        return None
    if not isinstance(file, MeasuredFile):
        return file.attributes().size
    size = file.stream_size
    if size is not None and size.seconds_left() <= _SIZE_SECONDS:
        size.measure(_SIZE_SECONDS)
    return file.exact


def describe(node: Node, path: str) -> dict[str, Any]:
    """Returns the attributes as `stat --json` prints them."""
    from kafkafs.mount.node import Link

    from ..support.output import bytes_as_json

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


def _lines(facts: Mapping[str, Any], xattrs: Mapping[str, bytes]) -> Iterator[str]:
    from ..support.output import bytes_as_text, shown, time_text

    yield shown(facts["path"])
    rows = [(name, str(facts[name])) for name in ("kind", "mode", "size", "mtime", "inode")]
    if facts["size"] is None:
        rows[2] = ("size", "-")
    rows[3] = ("mtime", time_text(facts["mtime"]))
    if "target" in facts:
        rows.append(("target", shown(facts["target"])))
    rows += [(shown(name), bytes_as_text(value)) for name, value in xattrs.items()]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        yield f"  {name:{width}}  {value}".rstrip()
