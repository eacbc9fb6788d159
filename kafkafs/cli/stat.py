"""`kafkafs stat`: what is known of a file beside its bytes."""

from __future__ import annotations

import stat as modes
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from .params import Setting, json_option, log_dirs_argument, paths_argument, reading_options
from .verb import Verb

if TYPE_CHECKING:
    from kafkafs.mount.nodes.node import Node

# The size of a stream is found if that is expected to take no longer than this.
_SIZE_SECONDS: Final = 1.0


@click.command(
    cls=Verb,
    short_help="Print attributes of files: size, time, key, headers, batch.",
    examples=[
        ("kafkafs stat /data orders/0/offset/600", "a record's size, time, key, headers, batch"),
        ("kafkafs stat -L /data orders/0/offset/last", "those of the record a link leads to"),
        (
            "kafkafs stat --json /data orders/0/offset/600 | jq -r '.xattrs[\"user.kafka.codec\"]'",
            "for programs",
        ),
    ],
)
@log_dirs_argument
@paths_argument(required=False)
@click.option("-L", "--dereference", is_flag=True, help="Of a link, show what it leads to.")
@reading_options
@json_option("one JSON object a line for each PATH; times are milliseconds since 1970")
def command(
    log_dirs: tuple[str, ...],
    paths: tuple[str, ...],
    dereference: bool,
    settings: tuple[Setting, ...],
    isolation: str,
    as_json: bool,
) -> int:
    """Print the attributes and extended attributes of PATHS, of the tree's root without any.

    Values that are not UTF-8 text are printed as 0x and hexadecimal digits, in JSON as
    {"base64": "…"}.
    """
    from .opening import for_each, open_tree, resolve
    from .output import binary, json_line, line

    tree = open_tree(log_dirs, settings, isolation)
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
    """The size of a file; None if it has no end, or if finding its size would take long."""
    from kafkafs.mount.nodes.node import MeasuredFile
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
    """What `stat --json` prints."""
    from kafkafs.mount.nodes.node import Link

    from .output import bytes_as_json

    found = node.attributes()
    facts: dict[str, Any] = {
        "path": path or "/",
        "kind": kind(found.mode),
        "mode": f"{modes.S_IMODE(found.mode):04o}",
        "size": known_size(node) if modes.S_ISREG(found.mode) else found.size,
        "mtime": found.mtime_ns // 1_000_000,
        "inode": str(found.inode),  # more than the 53 bits that a number has in JavaScript and jq
    }
    if isinstance(node, Link):
        facts["target"] = node.target()
    facts["xattrs"] = {name: bytes_as_json(value) for name, value in node.xattrs().items()}
    return facts


def kind(mode: int) -> str:
    """What a mode's type bits say, in a word."""
    if modes.S_ISDIR(mode):
        return "directory"
    return "link" if modes.S_ISLNK(mode) else "file"


def _lines(facts: Mapping[str, Any], xattrs: Mapping[str, bytes]) -> Iterator[str]:
    from .output import bytes_as_text, shown, time_text

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
