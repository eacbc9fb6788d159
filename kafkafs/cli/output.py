"""Results on stdout: bytes as they are, lines, JSON lines, aligned columns."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, TypeVar

from kafkafs.storage.errors import printable

from .failures import Failure

Item = TypeVar("Item")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def binary() -> BinaryIO:
    """stdout for bytes; what was written as text comes first."""
    if sys.stdout is None:
        raise Failure("stdout is closed; there is nowhere to write to")
    sys.stdout.flush()
    return sys.stdout.buffer


def finish() -> None:
    """Hands over what is still buffered. Failure where nobody takes it, as on a full disk."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        # Else Python would try again when it ends, and complain in its own words.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Failure(f"stdout: {os.strerror(error.errno or 0)}") from error


def is_terminal() -> bool:
    return sys.stdout.isatty()


def line(text: str) -> bytes:
    """A line for stdout: names as the tree has them, whatever their bytes."""
    return text.encode("utf-8", "surrogateescape") + b"\n"


def json_line(value: Any) -> bytes:
    """One JSON value on a line. Bytes in names that are not UTF-8 come as lone surrogates."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


def shown(name: str) -> str:
    """`name` as people may see it: escaped on a terminal, which would obey it."""
    return printable(name) if is_terminal() else name


def bytes_as_json(value: bytes) -> str | dict[str, str]:
    """A string where it is UTF-8, else {"base64": "…"}."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


def bytes_as_text(value: bytes) -> str:
    """`value` on one line: escaped where it has line breaks or the like, even in a pipe."""
    try:
        return printable(value.decode())
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def aligned(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> Iterable[str]:
    """Rows as lines of aligned columns, two blanks between; those in `right` end together."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    to_right = set(right)
    for row in rows:
        cells = [
            cell.rjust(width) if index in to_right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def time_text(milliseconds: int) -> str:
    """A time as `time/T` takes it, UTC; "-" for -1, the number itself where no calendar reaches."""
    if milliseconds == -1:
        return "-"
    try:
        time = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def size_text(size: int, human: bool = False) -> str:
    """Bytes as a number, or as `ls -h` writes them: three digits at most and a power of 1024."""
    if not human or size < 1024:
        return str(size)
    units = iter("KMGTPE")
    scaled, unit = size / 1024, next(units)
    while scaled >= 1023.5:
        scaled, unit = scaled / 1024, next(units)
    return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """`told(done, total)` moves a bar on stderr, if a person may be watching; any thread may call
    it. A total of 0 is one that nobody knows."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total or None)


def progress(items: Sequence[Item], what: str) -> Iterable[Item]:
    """`items`, with a bar on stderr while they are worked on, if there are many and a person may
    be watching."""
    if len(items) < 200 or not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, what, console=Console(stderr=True), transient=True)
