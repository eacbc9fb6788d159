"""Results on stdout: bytes as they are, lines, JSON lines, aligned columns."""

from __future__ import annotations

import base64
import codecs
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Protocol, TypeVar

from kafkafs.storage.errors import printable
from kafkafs.storage.times import time_text as time_text

from .failures import Failure
from .progress import bar as bar

Item = TypeVar("Item")


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


class Output(Protocol):
    """Where bytes are written."""

    def write(self, data: bytes | bytearray | memoryview, /) -> object: ...
    def flush(self) -> None: ...


class _Escaping:
    """Text for a terminal, which would obey control characters: they are escaped, but for the ends
    of lines and tabs, and so are bytes that are not UTF-8."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def write(self, data: bytes | bytearray | memoryview, /) -> None:
        self._put(self._decoder.decode(data))

    def flush(self) -> None:
        self._out.flush()

    def finish(self) -> None:
        """Writes what may have been the beginning of a character."""
        self._put(self._decoder.decode(b"", final=True))

    def _put(self, text: str) -> None:
        lines = text.split("\n")
        safe = "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)
        self._out.write(safe.encode())


@contextmanager
def of_records() -> Iterator[Output]:
    """stdout for what somebody else wrote to a log: byte for byte, but escaped on a terminal."""
    if not is_terminal():
        yield binary()
        return
    escaping = _Escaping(binary())
    yield escaping
    escaping.finish()


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


def size_text(size: int, human: bool = False) -> str:
    """Bytes as a number, or as `ls -h` writes them: three digits at most and a power of 1024."""
    if not human or size < 1024:
        return str(size)
    units = iter("KMGTPE")
    scaled, unit = size / 1024, next(units)
    while scaled >= 1023.5:
        scaled, unit = scaled / 1024, next(units)
    return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"


def progress(items: Sequence[Item], what: str) -> Iterable[Item]:
    """`items`, with a bar on stderr while they are worked on, if there are many."""
    if len(items) < 200:
        return items
    return _with_bar(items, what)


def _with_bar(items: Sequence[Item], what: str) -> Iterator[Item]:
    with bar(what) as report:
        for number, item in enumerate(items):
            report(number, len(items))
            yield item
