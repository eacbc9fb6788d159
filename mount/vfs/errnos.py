"""Maps errors to errno numbers: the one place that decides what a system call returns.

TreeError
├── NoSuchName       lookup: the directory has no such name
│   └── NoSuchRange  … because no such range of offsets is served
├── NoSuchAttribute  getxattr: the node has no such extended attribute
├── NotADirectory    a directory is needed, but the node is a file or a link
├── IsADirectory     a file is needed, but the node is a directory
├── Stale            by inode number: the object was deleted or replaced
├── ReadInterrupted  following: no record arrived within a second
├── Ending           waiting for long work: the mount is shutting down
├── PastEnd          a read past the end of a stream whose size was not known
├── Outgrown         a read up to the reported size of a stream that is longer
├── DamageAhead      a read up to damage, possibly made by the page cache
├── WouldBlock       following with O_NONBLOCK: no record yet
├── ReadOnly         a change through a read-only mount
├── NotPermitted     a change that no writable mount allows: to history, or what derives from it
├── Busy             removal of a file in use: the active segment
├── NotEmpty         removal of a directory that still holds records
├── Exists           creation of a name that exists
├── Invalid          an argument, or data of a write, that is malformed or not allowed here
├── TooLarge         a write of more than one record, or one file here, can hold
├── NoSpace          more files than a mount keeps in memory
├── NameTooLong      lookup: longer than any name in a file system here
└── TooManyInodes    more topics, partitions and cleanings than inode numbers can encode
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from kafkafs.storage import errors, printable


class TreeError(Exception):
    """Base of the errors that the tree itself raises; `str()` is one line for people."""


class NoSuchName(TreeError):
    """A directory has no entry `name`. `why` returns the explanation for people. It is called only
    when the error is printed, because the kernel asks for missing names all the time and needs
    only the errno."""

    def __init__(self, name: str, why: Callable[[], str] | None = None) -> None:
        super().__init__(name)
        self.name = name
        self._why = why

    def __str__(self) -> str:
        if self._why is None:
            return f"{printable(self.name)}: no such file or directory"
        return printable(self._why())


class NoSuchRange(NoSuchName):
    """A directory of ranges has no entry `name`; `why` says what is wrong with the name."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name)
        self.args = (name, why)
        self.why = why

    def __str__(self) -> str:
        return f"{printable(self.name)}: {self.why}"


class NoSuchAttribute(TreeError):
    """A node has no extended attribute of that name."""


class NotADirectory(TreeError):
    """A file or link was used as a directory."""


class IsADirectory(TreeError):
    """A directory was used as a file."""


class Stale(TreeError):
    """The object of an inode number was deleted or replaced."""


class ReadInterrupted(TreeError):
    """A read at the end of a followed stream timed out; the caller may read again."""


class Ending(TreeError):
    """The mount is shutting down before the awaited work is done."""


class PastEnd(TreeError):
    """A read began past a stream's end: the reader relied on a size that was only a bound."""

    def __init__(self, name: str, position: int, end: int) -> None:
        super().__init__(
            f"{name}: a read began at byte {position} of a stream that ends at {end}: its size was"
            " not known yet when it was opened"
        )


class Outgrown(TreeError):
    """A read reached the bound that was reported for a stream, but the stream is longer: a program
    that relies on the bound would lose the rest."""

    def __init__(self, name: str, bound: int) -> None:
        super().__init__(
            f"{name}: it is larger than {bound} bytes, the bound reported before its size was"
            " known: the read that reached the bound failed; open the file again"
        )


class DamageAhead(TreeError):
    """A read up to damage, which the program should repeat."""


class WouldBlock(TreeError):
    """A read at the end of a followed stream that was opened with O_NONBLOCK."""


class ReadOnly(TreeError):
    """The tree is read-only."""


class NotPermitted(TreeError):
    """The operation would rewrite history; `str()` is the reason."""


class Busy(TreeError):
    """The file to be removed is in use; `str()` is the reason."""


class NotEmpty(TreeError):
    """A directory to be removed is not empty; `str()` names what is in it."""


class Exists(TreeError):
    """The name to be created exists."""


class Invalid(TreeError):
    """An argument or the written data is not accepted; `str()` is the reason."""


class TooLarge(TreeError):
    """The written data exceeds a limit; `str()` names the limit."""


class NoSpace(TreeError):
    """The files exceed the memory or disk limit of the mount; `str()` names the limit."""


class NameTooLong(TreeError):
    """A name of more than 255 bytes."""


class TooManyInodes(TreeError):
    """No inode number is left for another partition."""


#: Every error that an operation can raise. Any other is a bug.
ERRNOS: Final[dict[type[Exception], int]] = {
    TreeError: errno.EIO,
    NoSuchName: errno.ENOENT,
    NoSuchRange: errno.ENOENT,
    NoSuchAttribute: errno.ENODATA,
    NotADirectory: errno.ENOTDIR,
    IsADirectory: errno.EISDIR,
    Stale: errno.ESTALE,
    ReadInterrupted: errno.EINTR,
    Ending: errno.EINTR,
    PastEnd: errno.EIO,
    Outgrown: errno.EIO,
    DamageAhead: errno.EINTR,
    WouldBlock: errno.EAGAIN,
    ReadOnly: errno.EROFS,
    NotPermitted: errno.EPERM,
    Busy: errno.EBUSY,
    NotEmpty: errno.ENOTEMPTY,
    Exists: errno.EEXIST,
    Invalid: errno.EINVAL,
    TooLarge: errno.EFBIG,
    NoSpace: errno.ENOSPC,
    NameTooLong: errno.ENAMETOOLONG,
    TooManyInodes: errno.EOVERFLOW,
    errors.StorageError: errno.EIO,
    errors.LogDirError: errno.EIO,
    errors.LogDirLocked: errno.EBUSY,
    errors.LogDirOffline: errno.EIO,
    errors.NotClosed: errno.EIO,
    errors.ConfigsNotRemoved: errno.ENOSPC,
    errors.ConfigError: errno.EINVAL,
    errors.UnknownTopic: errno.ENOENT,
    errors.CreatedLater: errno.ENOENT,
    errors.UnknownPartition: errno.ENOENT,
    errors.UnknownGroup: errno.ENOENT,
    errors.NoClusterMetadata: errno.ENOENT,
    errors.MetadataUnavailable: errno.ENODATA,
    errors.UnknownName: errno.ENOENT,
    errors.UnknownSchema: errno.ENOENT,
    errors.SchemaError: errno.EIO,
    errors.MissingReference: errno.EIO,
    errors.BytesLeft: errno.EIO,
    errors.DatumError: errno.EIO,
    errors.PartitionNotOpened: errno.EIO,
    errors.OffsetNotFound: errno.ENOENT,
    errors.SegmentGone: errno.ENOENT,
    errors.DataLoss: errno.ENOENT,
    errors.OtherJob: errno.EBUSY,
    errors.CorruptError: errno.EIO,
    errors.CleaningAborted: errno.EINTR,  # at shutdown
    errors.RecordNotFound: errno.ENOENT,
    errors.NotErased: errno.EBUSY,
    errors.CannotUndelete: errno.ENOENT,
    errors.TopicExists: errno.EEXIST,
    errors.Refused: errno.EINVAL,  # whatever Kafka would reject
    errors.BadLine: errno.EINVAL,
    errors.PolicyViolation: errno.EPERM,
    errors.InRemoteStorage: errno.EPERM,
    errors.Unregistered: errno.EPERM,
    errors.MessageTooLarge: errno.EFBIG,
    errors.RecordListTooLarge: errno.EFBIG,
}

# Errors of the log directory's disk that mean the same to a reader of the mount.
_PASSED_ON: Final = frozenset(
    (
        *(errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
        *(errno.ESTALE, errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    )
)


def errno_of(error: Exception) -> int:
    """Returns the errno of `error`: that of its class or nearest base, else EIO."""
    if isinstance(error, OSError):
        return error.errno if error.errno in _PASSED_ON else errno.EIO
    for kind in type(error).__mro__:
        if kind in ERRNOS:
            return ERRNOS[kind]
    return errno.EIO
