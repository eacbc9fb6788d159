"""Turns lines written to a partition's `append` and `append.jsonl` into records."""

from __future__ import annotations

from typing import Final

from kafkafs.storage import (
    BadLine,
    LineAppender,
    LineParser,
    MessageTooLarge,
    RecordColumns,
    RecordListTooLarge,
    printable,
)

from ..partition import MountedPartition
from ..vfs.errnos import Invalid, TooLarge, TreeError
from ..vfs.write_handle import WriteHandle
from .changes import Changes

# A byte of a record takes at most six in JSON, as an escape; the JSON around it takes far less than
# _ROOM_BYTES.
_ESCAPE_BYTES: Final = 6
_ROOM_BYTES: Final = 1 << 16
# The most bytes of a line, whatever the topic allows.
_MAX_LINE_BYTES: Final = 256 << 20
# Values of compression.type with which lines are not compressed. Compressing takes longer than all
# the rest.
_PLAIN: Final = ("producer", "uncompressed")


class AppendHandle(WriteHandle):
    """An open `append`. Each write appends its lines before it returns. A last line without a line
    end is kept until its rest is written or the file is closed.

    After a bad line the handle rejects everything, since later bytes may belong to that line. After
    any other error nothing of the failed write was appended, and it can be repeated.
    """

    def __init__(
        self, changes: Changes, partition: MountedPartition, name: str, parse: LineParser
    ) -> None:
        self._changes = changes
        self._name = printable(f"{partition.topic}/{partition.number}/{name}")
        self._writer = changes.writer(partition)
        self._appender = LineAppender(parse, self._append_records)
        self._rest = bytearray()  # the last line, while its end is missing
        self._is_torn = False  # whether a write that continues that line has failed
        self._bad: TreeError | None = None

    def write(self, position: int, data: bytes) -> int:
        """Takes all of `data`, or, after an error among many lines, the lines before it. `position`
        is ignored: a log grows at its end."""
        self._refuse_bad()
        end = data.rfind(b"\n") + 1
        self._is_torn = True
        if end:
            taken = self._append(b"".join((self._rest, memoryview(data)[:end])))
            if taken is not None:
                return taken
            self._rest.clear()
        self._is_torn = False
        self._rest += data[end:]
        self._refuse_long()
        return len(data)

    def write_is_quick(self, size: int) -> bool:
        """Returns whether a write of `size` bytes is quick, assuming one record per byte. Whether a
        record is recent is known only after parsing."""
        most = size + len(self._rest)
        is_plain = self._writer.config.compression_type in _PLAIN
        return is_plain and self._writer.takes_at_once(most, most, is_recent=False)

    def _append(self, lines: bytes) -> int | None:
        """Appends `lines`. Returns None, or, after an error, how many bytes after `_rest` belong to
        lines that were appended."""
        before = self._appender.lines
        try:
            self._appender.append(lines)
        except BadLine as bad:
            is_large = isinstance(bad.cause, MessageTooLarge | RecordListTooLarge)
            self._refuse((TooLarge if is_large else Invalid)(f"{self._name}: {bad}"))
        except Exception:
            appended = self._appender.lines - before
            if not appended:
                raise
            taken = len(b"\n".join(lines.split(b"\n")[:appended])) + 1 - len(self._rest)
            self._rest.clear()
            return taken
        return None

    def _append_records(self, records: RecordColumns) -> None:
        self._writer.append_records(records.stamped(self._changes.engine.clock.now_ms()))

    def _refuse_long(self) -> None:
        """Rejects an unfinished line that is longer than any record that the topic accepts."""
        limit = self._writer.config.max_message_bytes * _ESCAPE_BYTES + _ROOM_BYTES
        limit = min(limit, _MAX_LINE_BYTES)
        if len(self._rest) > limit:
            number = self._appender.lines + 1
            self._refuse(TooLarge(f"{self._name}: line {number}: longer than {limit} bytes"))

    def _refuse(self, error: TreeError) -> None:
        self._rest.clear()
        self._bad = error
        self._refuse_bad()

    def _refuse_bad(self) -> None:
        if self._bad is not None:
            raise type(self._bad)(str(self._bad)) from None

    def truncate(self, size: int) -> None:
        """Does nothing: a log cannot be truncated."""

    @property
    def flushes(self) -> bool:
        return bool(self._rest) or self._bad is not None

    @property
    def closes(self) -> bool:
        return False

    def flush(self) -> None:
        """Appends a last line without a line end, unless a write that continues it has failed."""
        self._refuse_bad()
        if self._rest and not self._is_torn:
            self._append(bytes(self._rest))
            self._rest.clear()

    def sync(self) -> None:
        """Makes all whole lines that were written durable."""
        self._refuse_bad()
        self._writer.flush()
