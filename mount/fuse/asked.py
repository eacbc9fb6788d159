"""The last lookup of each thread, so that an open() right after it gets the same inode.

cp and other programs stat a file, open it, and give up if the open file has another inode. A file
whose content is different each time, such as the metrics, could therefore never be copied. So
a thread that has looked up a name gets the same file again until it opens a file.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from time import monotonic
from typing import Final

from kafkafs.storage.errors import StorageError

from ..node import FixedFile
from ..vfs.errnos import TreeError

# The time between stat and open in one program is usually shorter. It delays how soon appended
# records become visible.
_SECONDS: Final = 0.1
_MOST_THREADS: Final = 256


@dataclass(frozen=True, slots=True)
class _Answer:
    name: tuple[int, bytes]
    file: FixedFile
    at: float


class Asked:
    """The last answer given to each thread. Only the event loop uses it."""

    def __init__(self) -> None:
        self._answers: OrderedDict[int, _Answer] = OrderedDict()

    def note(self, pid: int, parent_inode: int, name: bytes, file: FixedFile) -> None:
        """Records that the thread's lookup returned `file`."""
        self._answers[pid] = _Answer((parent_inode, name), file, monotonic())
        self._answers.move_to_end(pid)
        if len(self._answers) > _MOST_THREADS:
            self._answers.popitem(last=False)

    def find(self, pid: int, parent_inode: int, name: bytes) -> FixedFile | None:
        """Returns the file of the thread's last lookup; None if that was of another name, is too
        old, or its file is no longer valid."""
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
        """Discards the thread's answer, because it opened a file."""
        self._answers.pop(pid, None)
