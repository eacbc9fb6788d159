"""Prints directory listings for `kafkafs ls`, in batches, so that memory use stays bounded."""

from __future__ import annotations

import shutil
import stat as modes
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, BinaryIO, Final

from kafkafs.mount.node import DirectoryNode, DirEntry, DirEntryRun, Link, Node, entries_of
from kafkafs.mount.nodes.offsets import OffsetDirectory
from kafkafs.mount.vfs.timeouts import NOT_AT_ALL

from .attributes import kind, known_size
from .failures import Failure, warn
from .output import aligned, json_line, line, padded, shown, size_text, time_text, width

# The number of names that are held and aligned together: listing ten million records takes the
# memory of a thousand.
_TOGETHER: Final = 1000


@dataclass(frozen=True, slots=True)
class Style:
    """`long`: with attributes. `human`: sizes with a unit. `columns`: several names per line."""

    long: bool
    human: bool
    columns: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class _Item:
    """A name with its attributes. `target` is that of a link, "" for others. `size` is None if it
    is unknown or would take long to find."""

    name: str
    mode: int
    size: int | None
    mtime_ms: int
    target: str


def print_listing(
    node: Node,
    path: str,
    style: Style,
    out: BinaryIO,
    *,
    hidden: bool,
    itself: bool,
    span: tuple[int | None, int | None] | None = None,
) -> None:
    """Prints the names in `node`, which is at `path`, or only that path if it is a file or `itself`
    is true. `hidden` includes names that begin with a dot. `span` limits records to a time range,
    as in `OffsetDirectory.between`."""
    if span is not None:
        if not isinstance(node, OffsetDirectory) or node.reads_much:
            raise Failure(
                f"{path or '/'}: --since and --until apply only to TOPIC/PARTITION/offset"
            )
        runs = _some(node.between(*span), path, span)
    elif isinstance(node, DirectoryNode) and not itself:
        runs = node.readdir(0)
    else:
        runs, hidden = entries_of([(path or "/", node)], 0), True
    if style.as_json:
        out.writelines(json_line(_fields(item)) for item in _items(node, runs, hidden))
    elif style.long:
        items = _items(node, runs, hidden)
        while some := list(islice(items, _TOGETHER)):
            lines = aligned([_cells(item, style.human) for item in some], right=(1,))
            out.writelines(map(line, lines))
    elif style.columns:
        _print_columns(_names(runs, hidden), out)
    else:
        out.writelines(name + b"\n" for name in _names(runs, hidden))


def _entries(run: DirEntryRun, hidden: bool) -> Iterable[DirEntry]:
    return run.entries if hidden else (each for each in run.entries if not each[0].startswith(b"."))


def _names(runs: Iterable[DirEntryRun], hidden: bool) -> Iterator[bytes]:
    for run in runs:
        for entry in _entries(run, hidden):
            yield entry[0]


def _some(
    runs: Iterator[DirEntryRun], path: str, span: tuple[int | None, int | None]
) -> Iterator[DirEntryRun]:
    """Yields the runs; if there are none, warns on stderr and names the time range."""
    first = next(runs, None)
    if first is None:
        since, until = ("" if ms is None else time_text(ms) for ms in span)
        when = [f"from {since} on"] * bool(since) + [f"before {until}"] * bool(until)
        warn(f"{path}: no record {' and '.join(when)}")
        return
    yield first
    yield from runs


def _items(node: Node, runs: Iterable[DirEntryRun], hidden: bool) -> Iterator[_Item]:
    for run in runs:
        for raw, _, size, mtime_ns, _ in _entries(run, hidden):
            name = _text(raw)
            target = _target(node, name) if modes.S_ISLNK(run.mode) else ""
            known: int | None = size
            if modes.S_ISREG(run.mode) and run.attr_timeout == NOT_AT_ALL:
                found = node.child(name) if isinstance(node, DirectoryNode) else node
                known, mtime_ns = known_size(found), found.attributes().mtime_ns
            yield _Item(name, run.mode, known, mtime_ns // 1_000_000, target)


def _target(node: Node, name: str) -> str:
    link = node.child(name) if isinstance(node, DirectoryNode) else node
    return link.target() if isinstance(link, Link) else ""


def _fields(item: _Item) -> dict[str, Any]:
    target = {"target": item.target} if item.target else {}
    return {
        "name": item.name,
        "kind": kind(item.mode),
        "mode": f"{modes.S_IMODE(item.mode):04o}",
        "size": item.size,
        "mtime": item.mtime_ms,
        **target,
    }


def _cells(item: _Item, human: bool) -> Sequence[str]:
    name = shown(item.name) + (f" -> {shown(item.target)}" if item.target else "")
    size = "-" if item.size is None else size_text(item.size, human)
    return modes.filemode(item.mode), size, time_text(item.mtime_ms), name


def _print_columns(names: Iterator[bytes], out: BinaryIO) -> None:
    """Prints names column by column, as ls does; more than `_TOGETHER` names one per line."""
    some = [shown(_text(name)) for name in islice(names, _TOGETHER)]
    more = next(names, None)
    if more is not None:
        rest = (shown(_text(name)) for name in chain([more], names))
        out.writelines(map(line, chain(some, rest)))
    elif some:
        out.writelines(map(line, _in_columns(some, shutil.get_terminal_size().columns)))


def _in_columns(names: Sequence[str], available: int) -> Iterator[str]:
    for height in range(1, len(names) + 1):
        columns = [names[at : at + height] for at in range(0, len(names), height)]
        widths = [max(map(width, column)) for column in columns]
        if sum(widths) + 2 * (len(columns) - 1) <= available or height == len(names):
            break
    for row in range(height):
        cells = [
            padded(column[row], wide)
            for column, wide in zip(columns, widths, strict=True)
            if row < len(column)
        ]
        yield "  ".join(cells).rstrip()


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
