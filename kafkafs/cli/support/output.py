"""Writes results to stdout, as raw bytes, lines, JSON lines or aligned columns, and to files."""

from __future__ import annotations

import codecs
import json
import os
import stat
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

from kafkafs.storage import printable
from kafkafs.storage import time_text as time_text

from .failures import Failure
from .progress import bar as bar

if TYPE_CHECKING:
    from kafkafs.storage import Row


def binary() -> BinaryIO:
    """Returns stdout for bytes, after flushing text that was written before."""
    if sys.stdout is None:
        raise Failure("stdout is closed; there is nowhere to write to")
    sys.stdout.flush()
    return sys.stdout.buffer


def finish() -> None:
    """Flushes stdout. Raises Failure if that fails, as on a full disk."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        # Otherwise Python would flush again at exit and print its own error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Failure(f"stdout: {os.strerror(error.errno or 0)}") from error


_TEMPORARY: Final = ".kafkafs-"

# Marks, and format characters such as a zero width space.
_WITHOUT_COLUMN: Final = ("Mn", "Me", "Cf")


class Output(Protocol):
    """A destination for bytes."""

    def write(self, data: bytes | bytearray | memoryview, /) -> object: ...
    def flush(self) -> None: ...


class _Escaping:
    """Escapes control characters, which a terminal would obey, except line breaks and tabs; escapes
    bytes that are not UTF-8, too."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def write(self, data: bytes | bytearray | memoryview, /) -> None:
        self._put(self._decoder.decode(data))

    def flush(self) -> None:
        self._out.flush()

    def finish(self) -> None:
        """Writes a trailing incomplete character."""
        self._put(self._decoder.decode(b"", final=True))

    def _put(self, text: str) -> None:
        lines = text.split("\n")
        safe = "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)
        self._out.write(safe.encode())


@contextmanager
def of_records() -> Iterator[Output]:
    """Yields stdout for untrusted bytes from a log: as they are, but escaped on a terminal."""
    if not is_terminal():
        yield binary()
        return
    escaping = _Escaping(binary())
    yield escaping
    escaping.finish()


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def line(text: str) -> bytes:
    """Encodes a line for stdout; names keep their bytes even if they are not UTF-8."""
    return text.encode("utf-8", "surrogateescape") + b"\n"


def json_line(value: Any) -> bytes:
    """Encodes a JSON value as one line. Bytes that are not UTF-8 become lone surrogates."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


def json_rows(rows: Iterable[Row]) -> None:
    """Writes rows of an operation as lines of JSON."""
    binary().writelines(json_line(row.as_json()) for row in rows)


def table(rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> None:
    """Writes rows, the first of which are the headings, as aligned columns; see `aligned`."""
    binary().writelines(map(line, aligned(list(rows), right)))


def shown(name: str) -> str:
    """Returns `name`, with control characters escaped if stdout is a terminal."""
    return printable(name) if is_terminal() else name


def bytes_as_text(value: bytes) -> str:
    """Returns `value` on one line; control characters are escaped even in a pipe."""
    try:
        return printable(value.decode())
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def aligned(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> Iterable[str]:
    """Yields rows as lines of aligned columns, two spaces apart; `right` are right-aligned."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    to_right = set(right)
    for row in rows:
        cells = [
            padded(cell, columns, right=index in to_right)
            for index, (cell, columns) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """Adds spaces after a text, or before it, until it takes so many columns of a terminal."""
    padding = " " * (columns - width(text))
    return padding + text if right else text + padding


def width(text: str) -> int:
    """Returns how many columns of a terminal a text takes: two for a wide character, as most of
    East Asia's are, and none for one that combines with the character before it."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in _WITHOUT_COLUMN:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def replace_file(path: str, data: bytes) -> None:
    """Writes a file as `replacing` does."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Yields a file to write to. At every moment, even if the block fails, the path leads to the
    old file or to the complete new one, which has the old one's permissions. A device or a pipe is
    written to. Raises OSError with the path as its filename."""
    try:
        before = os.stat(path).st_mode if os.path.exists(path) else None
        if before is not None and not stat.S_ISREG(before):
            with open(path, "wb") as file:
                yield file
        else:
            with _replacing(os.path.realpath(path), before) as file:
                yield file
    except OSError as error:
        if error.filename not in (None, path) and not _is_temporary(error.filename):
            raise  # of another file, from the block
        # a failed write names no file, others the temporary one
        raise OSError(error.errno, error.strerror, path) from None


def _is_temporary(path: object) -> bool:
    return isinstance(path, str) and os.path.basename(path).startswith(_TEMPORARY)


@contextmanager
def _replacing(path: str, mode: int | None) -> Iterator[BinaryIO]:
    temporary = os.path.join(os.path.dirname(path), f"{_TEMPORARY}{os.urandom(8).hex()}.tmp")
    try:
        with open(temporary, "xb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def size_text(size: int, human: bool = False) -> str:
    """Formats bytes as a number, or like `ls -h`: at most three digits and a power of 1024."""
    if not human or size < 1024:
        return str(size)
    units = iter("KMGTPE")
    scaled, unit = size / 1024, next(units)
    while scaled >= 1023.5:
        scaled, unit = scaled / 1024, next(units)
    return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"
