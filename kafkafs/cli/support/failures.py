"""Error reporting: a verb that fails prints one line on stderr and exits with a code.

The codes are 0: success; 1: an error, or a problem was found; 2: wrong usage; 130: interrupted
(Ctrl-C).
"""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING, Final

import click

from kafkafs.mount.vfs import errnos
from kafkafs.storage import errors, is_url, printable

if TYPE_CHECKING:
    from kafkafs.storage import Engine, PartitionFailed

INTERRUPTED: Final = 130
# The name of a segment's log in a message.
_SEGMENT: Final = re.compile(r"\b[0-9]{20}\.log\b")

# Advice for who may not read, or write.
_OTHER_USER: Final = "; run as a user who may read the log directory, such as the broker's"
_CREDENTIALS: Final = (
    "; give credentials as the service's other programs take them, in the environment or its files"
)

# Lines about replicas that are not served.
_UNSERVED_SHOWN: Final = 10


class Failure(click.ClickException):
    """Ends the program with the one line `kafkafs: MESSAGE`."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))

    def line(self) -> str:
        return f"kafkafs: {self.message}"


class WrongUsage(Failure):
    """The command line is wrong, whatever the log directory holds."""

    exit_code = 2


# For each of the engine's errors the exception that ends the program, and advice for the user. A
# class without an entry uses that of its base class.
ENDINGS: Final[dict[type[errors.StorageError], tuple[type[Failure], str]]] = {
    errors.StorageError: (Failure, ""),
    errors.LogDirError: (Failure, ""),
    errors.LogDirLocked: (Failure, "stop that process, or open the directory read-only"),
    errors.LogDirOffline: (Failure, "check the disk, then run the command again"),
    errors.NotClosed: (Failure, ""),
    errors.ConfigsNotRemoved: (Failure, ""),
    errors.ConfigError: (WrongUsage, ""),
    errors.UnknownTopic: (Failure, "`kafkafs topic list` lists the existing topics"),
    errors.CreatedLater: (Failure, ""),
    errors.UnknownPartition: (Failure, ""),
    errors.NoClusterMetadata: (Failure, ""),
    errors.MetadataUnavailable: (Failure, ""),
    errors.UnknownName: (Failure, ""),
    errors.UnknownGroup: (Failure, ""),
    errors.UnknownSchema: (Failure, ""),
    errors.SchemaError: (Failure, ""),
    errors.MissingReference: (Failure, ""),
    errors.BytesLeft: (Failure, ""),
    errors.DatumError: (Failure, ""),
    errors.PartitionNotOpened: (Failure, "`kafkafs verify` lists all damage"),
    errors.OffsetNotFound: (Failure, ""),
    errors.SegmentGone: (Failure, "retention or the log cleaner deleted it; run the command again"),
    errors.DataLoss: (Failure, ""),
    errors.OtherJob: (Failure, ""),
    errors.CleaningAborted: (Failure, "run the command again"),
    errors.CorruptError: (Failure, "the records before and after the damage can still be read"),
    errors.RecordNotFound: (Failure, ""),
    errors.NotErased: (Failure, ""),
    errors.CannotUndelete: (Failure, "`kafkafs undelete --list` shows what can be restored"),
    errors.TopicExists: (Failure, ""),
    errors.Refused: (Failure, ""),
    errors.BadLine: (Failure, ""),
    errors.InvalidTopic: (WrongUsage, ""),
    errors.InvalidPartitions: (WrongUsage, ""),
}


def ending(error: type[errors.StorageError]) -> tuple[type[Failure], str]:
    """Returns how the program ends with such an error, and the advice ("" for none)."""
    return next(ENDINGS[base] for base in error.__mro__ if base in ENDINGS)


def failure(error: Exception, place: str = "") -> Failure:
    """Returns the failure for `error`, which occurred at `place` (a tree path or a directory)."""
    if isinstance(error, Failure):
        return error
    where = f"{place}: " if place else ""
    if isinstance(error, errors.StorageError):
        return _storage_failure(type(error), where + str(error))
    if isinstance(error, errnos.TreeError):
        return Failure(where + str(error))
    if isinstance(error, OSError):
        return Failure(where + _os_error(error))
    return Failure(
        f"{where}internal error: {type(error).__name__}: {error}; "
        "please report it with the output of --debug"
    )


def failure_of(row: PartitionFailed) -> Failure:
    """Returns the failure for an operation's row, wherever it happened."""
    if row.cause is not None:
        return failure(row.cause, row.where)
    kind = getattr(errors, row.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.StorageError)):
        kind = errors.StorageError
    where = f"{row.where}: " if row.where else ""
    return _storage_failure(kind, where + row.error)


def _storage_failure(kind: type[errors.StorageError], text: str) -> Failure:
    failing, advice = ending(kind)
    if issubclass(kind, errors.CorruptError) and not _SEGMENT.search(text):
        advice = ""  # a small file, which holds no records
    # A "did you mean …?" in the error itself is better advice than that of its class.
    return failing(text if text.endswith("?") or not advice else f"{text}; {advice}")


def report(error: Exception, place: str = "") -> int:
    """Prints the error on stderr without ending the program; returns the exit code for it."""
    return _report(failure(error, place))


def report_row(row: PartitionFailed) -> int:
    """Prints what failed on stderr without ending the program; returns the exit code for it."""
    return _report(failure_of(row))


def _report(found: Failure) -> int:
    click.echo(found.line(), err=True)
    return found.exit_code


def report_configs(engine: Engine) -> int:
    """Prints which files of topic configs could not be read, if any was needed; returns the exit
    code."""
    problems = engine.config_problems
    for problem in problems:
        warn(f"these topic configs do not apply: {problem}")
    return 1 if problems else 0


def warn_of_unserved(engine: Engine) -> None:
    """Prints which replicas are known to have, or may have, records that are not served, and which
    partitions have some in remote storage that were not read."""
    from kafkafs.storage import unread_parts

    for lines, what in (
        (engine.log_dirs.unserved, "replicas have records that are not served"),
        (list(unread_parts(engine)), "partitions have offsets in remote storage"),
        (engine.log_dirs.tier_problems, "things are wrong in remote storage"),
    ):
        for line in lines[:_UNSERVED_SHOWN]:
            warn(line)
        if len(lines) > _UNSERVED_SHOWN:
            warn(f"{len(lines) - _UNSERVED_SHOWN} more {what}")


def warn(message: str) -> None:
    """Prints a warning on stderr."""
    click.echo(Failure(message).line(), err=True)


def _os_error(error: OSError) -> str:
    what = error.strerror or str(error)
    # The engine's errors name the file. An error without a name came from writing to stdout.
    name = error.filename
    file = os.fsdecode(name) if isinstance(name, str | bytes) else "stdout"
    if error.errno in (errno.EACCES, errno.EPERM):
        what += _CREDENTIALS if is_url(file) else _OTHER_USER
    return f"{file}: {what}"


def usage_line(error: click.UsageError) -> str:
    """Returns Click's usage error as one line that refers to the command's --help."""
    command = error.ctx.command_path if error.ctx else "kafkafs"
    message = " ".join(error.format_message().split()).rstrip(".")
    if message[1:2].islower():
        message = message[0].lower() + message[1:]
    mark = "" if message.endswith("?") else ";"
    return f"{command}: {printable(message)}{mark} see `{command} --help`"
