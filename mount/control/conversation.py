"""`.kafkafs/control`: programs write verbs, one per line, and read the answers as JSON lines.

Each conversation has a thread for slow verbs and executes verbs in order, whether or not the answer
is read. After a conversation is closed, its remaining verbs are still executed.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from kafkafs.storage import PartitionFailed, StorageError, printable

from ..vfs import render
from ..vfs.errnos import Busy, Invalid, ReadInterrupted
from ..vfs.handles import IDLE_SECONDS, Data
from ..vfs.write_handle import WriteHandle

if TYPE_CHECKING:
    from kafkafs.storage import LogManager

Row = dict[str, Any]
Emit = Callable[[Row], None]

logger = logging.getLogger(__name__)

#: The most open conversations; bytes of a line; unread bytes of answers, beyond which verbs pause;
#: and verbs that wait for the one before.
MAX_OPEN: Final = 16
MAX_LINE_BYTES: Final = 1 << 20
MAX_UNREAD_BYTES: Final = 1 << 20
MAX_WAITING: Final = 64
# How much of a line is logged.
_SHOWN_BYTES: Final = 200


@dataclass(frozen=True, slots=True)
class Work:
    """The execution of a verb. `run` gets a function that emits a row of the answer; `is_quick`: it
    is executed before the write returns."""

    run: Callable[[Emit], None]
    is_quick: bool = False


@dataclass(frozen=True, slots=True)
class VerbWithData:
    """A verb whose line is followed by `size` bytes of data; `then` turns these into its work."""

    size: int
    then: Callable[[bytes], Work]


class Ended(Exception):
    """The mount ends, so running verbs are cancelled."""

    def __str__(self) -> str:
        return "the mount ends"


class Control:
    """The conversations of a mount. Any thread may use it."""

    def __init__(
        self, engine: LogManager, prepare: Callable[[Control, bytes], Work | VerbWithData]
    ) -> None:
        """`prepare` parses a line. It raises Invalid, or the engine's error for a name in it."""
        self.engine = engine
        self.prepare = prepare
        self._lock = threading.Lock()  # guards _open and _threads
        self._open = 0
        self._threads: set[threading.Thread] = set()
        self._ending = threading.Event()

    @property
    def is_ending(self) -> bool:
        return self._ending.is_set()

    def open(self) -> ControlHandle:
        """Opens a conversation. Raises Busy if too many are open."""
        with self._lock:
            if self._open >= MAX_OPEN:
                raise Busy(f"control is open {MAX_OPEN} times already")
            self._open += 1
        return ControlHandle(self)

    def closed(self) -> None:
        """Records that a conversation was closed."""
        with self._lock:
            self._open -= 1

    def start(self, work: Callable[[], None]) -> None:
        """Runs `work` in a thread that `close` waits for. Raises Ended if the mount ends."""

        def run() -> None:
            try:
                work()
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name="kafkafs-control", daemon=True)
        with self._lock:
            if self.is_ending:
                raise Ended
            self._threads.add(thread)
            thread.start()

    def check(self) -> None:
        """Raises Ended if the mount ends; to be called between the steps of a slow verb."""
        if self.is_ending:
            raise Ended

    def end(self) -> None:
        """Ends all waiting for answers, because the mount ends. Does not block."""
        self._ending.set()

    def close(self) -> None:
        """Cancels running verbs and waits until they have stopped, which takes at most a step of
        a cleaning or the retention of one partition."""
        self.end()
        with self._lock:
            threads = list(self._threads)
        if threads:
            self.engine.cleaner.stop()
        for thread in threads:
            thread.join()


class ControlHandle(WriteHandle):
    """A conversation. Positions are ignored: writes are lines in the order of their arrival, reads
    return the next part of the answer. Reads return end of file when all verbs are answered."""

    seekable = False

    def __init__(self, control: Control) -> None:
        self._control = control
        self._changed = threading.Condition()  # guards all below
        self._line = bytearray()
        self._awaiting_data: VerbWithData | None = None  # the verb that takes the next bytes,
        self._data = bytearray()  # and those of them that have arrived
        self._waiting: deque[Work] = deque()
        self._is_working = False
        self._rows: deque[memoryview] = deque()
        self._unread = 0
        self._is_closed = False

    # -- writing --------------------------------------------------------------------------------

    def write(self, position: int, data: bytes) -> int:
        """Executes or starts every whole line in `data`. Raises Invalid for the first malformed one
        and ignores the rest."""
        at = 0
        while at < len(data):
            take = self._add if self._awaiting_data is None else self._take_data
            at += take(data[at:])
        return len(data)

    def _add(self, data: bytes) -> int:
        """Takes the first line in `data`, or its beginning; returns the number of bytes taken."""
        line, end, _ = data.partition(b"\n")
        self._line += line
        if end:
            self._take_line()
        elif len(self._line) > MAX_LINE_BYTES:
            self._line.clear()
            raise Invalid(f"control: a line has more than {MAX_LINE_BYTES} bytes")
        return len(line) + len(end)

    def _take_data(self, data: bytes) -> int:
        """Takes the data of the verb before; returns the number of bytes taken."""
        assert self._awaiting_data is not None
        part = data[: self._awaiting_data.size - len(self._data)]
        self._data += part
        if len(self._data) == self._awaiting_data.size:
            work = self._awaiting_data.then(bytes(self._data))
            self._awaiting_data, self._data = None, bytearray()
            self._begin(work)
        return len(part)

    def truncate(self, size: int) -> None:
        """Does nothing: the shell's `>` calls it."""

    def flush(self) -> None:
        """Executes a last line without a line end."""
        if self._awaiting_data is not None:
            self._awaiting_data, self._data = None, bytearray()
            raise Invalid("control: the data after a line is shorter than its size")
        self._take_line()

    def _take_line(self) -> None:
        line, self._line = bytes(self._line), bytearray()
        if not line.strip():
            return
        shown = printable(line[:_SHOWN_BYTES].decode(errors="replace"))
        with self._changed:
            if len(self._waiting) >= MAX_WAITING or self._unread >= MAX_UNREAD_BYTES:
                raise Busy(f"control: {shown}: too many answers are pending; read them first")
        try:
            work = self._control.prepare(self._control, line)
        except (Invalid, StorageError) as error:
            self._put(PartitionFailed.of(error).as_json())
            raise Invalid(f"control: {shown}: {error}") from None
        if isinstance(work, VerbWithData) and work.size:
            self._awaiting_data = work
            return
        if isinstance(work, VerbWithData):
            work = work.then(b"")
        else:
            logger.info("control: %s", shown)
        self._begin(work)

    def _begin(self, work: Work) -> None:
        """Executes `work` now if it is quick and nothing else is running, otherwise in a thread."""
        with self._changed:
            self._waiting.append(work)
            if self._is_working:
                return
            self._is_working = True
        if work.is_quick:
            self._work()
        else:
            self._control.start(self._work)

    # -- working --------------------------------------------------------------------------------

    def _work(self) -> None:
        """Executes waiting verbs until there are none."""
        while True:
            with self._changed:
                if not self._waiting or self._control.is_ending:
                    self._is_working = False
                    self._waiting.clear()
                    self._changed.notify_all()
                    return
                work = self._waiting.popleft()
            self._do(work)

    def _do(self, work: Work) -> None:
        try:
            work.run(self._put if work.is_quick else self._put_slowly)
        except Ended as ended:
            self._put(PartitionFailed.of(ended).as_json())
        except (StorageError, OSError) as error:
            logger.info("control: %s", printable(str(error)))
            self._put(PartitionFailed.of(error).as_json())
        except Exception as error:
            logger.exception("control failed, which is a bug in kafkafs")
            self._put(PartitionFailed.of(error).as_json())

    def _put(self, row: Row) -> None:
        line = memoryview(render.json_line(row))
        with self._changed:
            if not self._is_closed:
                self._rows.append(line)
                self._unread += len(line)
                self._changed.notify_all()

    def _put_slowly(self, row: Row) -> None:
        """Emits a row, waiting while too much is unread. Raises Ended if the mount ends."""
        with self._changed:
            while self._unread >= MAX_UNREAD_BYTES and not self._is_closed:
                self._control.check()
                self._changed.wait(IDLE_SECONDS)
        self._put(row)

    # -- reading --------------------------------------------------------------------------------

    def read(self, position: int, size: int) -> Data:
        """Returns the next part of the answer, b"" at its end. Raises ReadInterrupted if there is
        nothing new for a while."""
        self.flush()
        deadline = monotonic() + IDLE_SECONDS
        with self._changed:
            while not self._rows:
                if not self._is_working:
                    return b""
                left = deadline - monotonic()
                if left <= 0 or self._control.is_ending:
                    raise ReadInterrupted
                self._changed.wait(left)
            return self._next(size)

    def _next(self, size: int) -> bytes:
        parts = []
        while size and self._rows:
            row = self._rows.popleft()
            if len(row) > size:
                self._rows.appendleft(row[size:])
            parts.append(row[:size])
            size -= len(parts[-1])
        data = b"".join(parts)
        self._unread -= len(data)
        self._changed.notify_all()
        return data

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._rows.clear()
            self._changed.notify_all()
        self._control.closed()
