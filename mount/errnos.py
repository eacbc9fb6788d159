"""Errors to errno numbers: the one place that decides what a caller of the kernel is told.

TreeError
├── NoSuchName       looking up: the directory has no such name
│   └── NoSuchRange  … because no such range of offsets is served
├── NoSuchAttribute  asking for an extended attribute: there is none of that name
├── WrongKind        using a node as what it is not: a directory as a file, a file as a link
├── Stale            by inode number: what it stood for has gone
├── Idle             following: nothing came for a while
├── Ending           waiting for what takes long: the mount ends before it is done
├── PastEnd          reading behind the end of a stream whose size was not known
├── Outgrown         reading up to the size that was reported for a stream, while there is more
├── Interrupted      reading up to damage, by the page cache perhaps
├── WouldBlock       following without waiting: nothing there now
├── ReadOnly         changing anything through a mount that only reads
├── Forbidden        changing what no writable mount changes: history, and what is made from it
├── Busy             removing what is in use: the active segment
├── NotEmpty         removing a directory that still holds records
├── Exists           making what is there already
├── Invalid          writing what is not understood or not allowed
├── TooLarge         writing more than one record, or one file here, can hold
├── NoRoom           making or writing more files than a mount keeps in memory
├── NameTooLong      looking up: no file system here has names of that length
└── TooManyInodes    more topics, partitions and cleanings than inode numbers have room for
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from kafkafs.storage import errors


class TreeError(Exception):
    """Base of what the tree itself refuses; `str()` is one line for people."""


class NoSuchName(TreeError):
    """A directory has no entry `name`. `why` makes the sentence that explains it to people. It runs
    only when the error is printed, because the kernel, which asks for missing names all the time,
    takes nothing but the errno."""

    def __init__(self, name: str, why: Callable[[], str] | None = None) -> None:
        super().__init__(name)
        self.name = name
        self._why = why

    def __str__(self) -> str:
        if self._why is None:
            return f"{errors.printable(self.name)}: no such file or directory"
        return errors.printable(self._why())


class NoSuchRange(NoSuchName):
    """A directory of ranges has no entry `name`; `why` says what is wrong with it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name)
        self.args = (name, why)
        self.why = why

    def __str__(self) -> str:
        return f"{errors.printable(self.name)}: {self.why}"


class NoSuchAttribute(TreeError):
    """A node has no extended attribute of that name."""


class WrongKind(TreeError):
    """A node was used as what it is not."""


class Stale(TreeError):
    """What an inode number stood for was deleted or replaced."""


class Idle(TreeError):
    """A read at the end of a followed stream waited long enough; the caller may read again."""


class Ending(TreeError):
    """The mount ends before what was waited for is done."""


class PastEnd(TreeError):
    """A read began behind a stream's end: the reader went by a size that was only a bound."""

    def __init__(self, name: str, position: int, end: int) -> None:
        super().__init__(
            f"{name}: a read began at byte {position} of a stream that ends at {end}: its size was"
            " not known yet when it was opened"
        )


class Outgrown(TreeError):
    """A read came to the bound that was reported for a stream, and the stream goes on: a program
    that goes by the bound would lose the rest."""

    def __init__(self, name: str, bound: int) -> None:
        super().__init__(
            f"{name}: it is larger than {bound} bytes, which were reported as a bound of its size"
            " before that was known: the read that reached them failed; open the file again"
        )


class Interrupted(TreeError):
    """A read up to damage that the program is to repeat."""


class WouldBlock(TreeError):
    """A read at the end of a followed stream that was opened with O_NONBLOCK."""


class ReadOnly(TreeError):
    """The tree is not writable."""


class Forbidden(TreeError):
    """What was asked for would rewrite history; `str()` is the reason."""


class Busy(TreeError):
    """What was to be removed is in use; `str()` is the reason."""


class NotEmpty(TreeError):
    """A directory to be removed is not empty; `str()` says what is in it."""


class Exists(TreeError):
    """What was to be made is there."""


class Invalid(TreeError):
    """What was written cannot be taken; `str()` is the reason."""


class TooLarge(TreeError):
    """More was written than there is room for; `str()` names the bound."""


class NoRoom(TreeError):
    """More files than are kept in memory; `str()` names the bound."""


class NameTooLong(TreeError):
    """A name of more than 255 bytes."""


class TooManyInodes(TreeError):
    """No inode number is left for another partition."""


#: Every error that an operation can end in. What is not here is a fault of ours.
ERRNOS: Final[dict[type[Exception], int]] = {
    TreeError: errno.EIO,
    NoSuchName: errno.ENOENT,
    NoSuchRange: errno.ENOENT,
    NoSuchAttribute: errno.ENODATA,
    WrongKind: errno.EINVAL,
    Stale: errno.ESTALE,
    Idle: errno.EINTR,
    Ending: errno.EINTR,
    PastEnd: errno.EIO,
    Outgrown: errno.EIO,
    Interrupted: errno.EINTR,
    WouldBlock: errno.EAGAIN,
    ReadOnly: errno.EROFS,
    Forbidden: errno.EPERM,
    Busy: errno.EBUSY,
    NotEmpty: errno.ENOTEMPTY,
    Exists: errno.EEXIST,
    Invalid: errno.EINVAL,
    TooLarge: errno.EFBIG,
    NoRoom: errno.ENOSPC,
    NameTooLong: errno.ENAMETOOLONG,
    TooManyInodes: errno.EOVERFLOW,
    errors.StorageError: errno.EIO,
    errors.LogDirError: errno.EIO,
    errors.LogDirLocked: errno.EBUSY,
    errors.LogDirOffline: errno.EIO,
    errors.NotClosed: errno.EIO,
    errors.SettingsStay: errno.ENOSPC,
    errors.ConfigError: errno.EINVAL,
    errors.UnknownTopic: errno.ENOENT,
    errors.UnknownPartition: errno.ENOENT,
    errors.OffsetNotFound: errno.ENOENT,
    errors.SegmentGone: errno.ENOENT,
    errors.CorruptError: errno.EIO,
    errors.CleaningAborted: errno.EINTR,  # as the mount ends
    errors.CannotUndelete: errno.ENOENT,
    errors.TopicExists: errno.EEXIST,
    errors.Refused: errno.EINVAL,  # whatever it is that Kafka would not take
    errors.BadLine: errno.EINVAL,
    errors.PolicyViolation: errno.EPERM,
    errors.Unregistered: errno.EPERM,
    errors.MessageTooLarge: errno.EFBIG,
    errors.RecordListTooLarge: errno.EFBIG,
}

# What the disk may say of a log directory that means the same to who reads the mount.
_PASSED_ON: Final = frozenset(
    (
        *(errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
        *(errno.ESTALE, errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    )
)


def errno_of(error: Exception) -> int:
    """The number for `error`: its class's, or the nearest base's; EIO for what nobody foresaw."""
    if isinstance(error, OSError):
        return error.errno if error.errno in _PASSED_ON else errno.EIO
    for kind in type(error).__mro__:
        if kind in ERRNOS:
            return ERRNOS[kind]
    return errno.EIO
