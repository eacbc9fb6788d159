"""What a program asked for a moment ago, for when it opens that next.

cp and other programs ask for a file's attributes, open it, and give up if they then have another
inode. A name that leads to other bytes every time, such as that of the metrics, could never be
copied. So a thread that looked a name up is led to the same file again, until it opens any.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from time import monotonic
from typing import Final

from kafkafs.storage.errors import StorageError

from ..errnos import TreeError
from ..nodes.node import FixedFile

# Between two calls of one program lies less, as a rule; what is appended meanwhile is seen later.
_SECONDS: Final = 0.1
_MOST_THREADS: Final = 256


@dataclass(frozen=True, slots=True)
class _Answer:
    name: tuple[int, bytes]
    file: FixedFile
    at: float


class Asked:
    """The last answer to each thread. The event loop alone uses it."""

    def __init__(self) -> None:
        self._answers: OrderedDict[int, _Answer] = OrderedDict()

    def note(self, pid: int, parent_inode: int, name: bytes, file: FixedFile) -> None:
        """The thread was led to `file`."""
        self._answers[pid] = _Answer((parent_inode, name), file, monotonic())
        self._answers.move_to_end(pid)
        if len(self._answers) > _MOST_THREADS:
            self._answers.popitem(last=False)

    def find(self, pid: int, parent_inode: int, name: bytes) -> FixedFile | None:
        """Where the name led a moment ago; None if it was not asked for, or does not lead there."""
        answer = self._answers.get(pid)
        if answer is None or answer.name != (parent_inode, name):
            return None
        if monotonic() - answer.at < _SECONDS:
            try:
                answer.file.check()
            except (StorageError, TreeError, OSError):
                return None
            return answer.file
        return None

    def forget(self, pid: int) -> None:
        """The thread opened a file."""
        self._answers.pop(pid, None)
