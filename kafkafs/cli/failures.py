"""How a verb that could not do its work ends: one line on stderr and an exit code.

0: done. 1: it could not, or it found something wrong. 2: wrong usage. 130: interrupted (Ctrl-C).
"""

from __future__ import annotations

import errno
import os
from typing import Final

import click

from kafkafs.mount import errnos
from kafkafs.storage import errors

INTERRUPTED: Final = 130


class Failure(click.ClickException):
    """Ends the program with the one line `kafkafs: MESSAGE`."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(errors.printable(message))

    def line(self) -> str:
        return f"kafkafs: {self.message}"


class WrongUsage(Failure):
    """The command line asks for something that does not exist, whatever the log directory holds."""

    exit_code = 2


# The engine's errors: how the program ends, and what can be done about it. What has no line of its
# own has that of its base.
ENDINGS: Final[dict[type[errors.StorageError], tuple[type[Failure], str]]] = {
    errors.StorageError: (Failure, ""),
    errors.LogDirError: (Failure, ""),
    errors.LogDirLocked: (Failure, "stop it, or only read"),
    errors.LogDirOffline: (Failure, "see to the disk, then run the command again"),
    errors.NotClosed: (Failure, ""),
    errors.SettingsStay: (Failure, ""),
    errors.ConfigError: (WrongUsage, ""),
    errors.UnknownTopic: (Failure, "`kafkafs topic list` shows those that are there"),
    errors.UnknownPartition: (Failure, ""),
    errors.OffsetNotFound: (Failure, ""),
    errors.SegmentGone: (Failure, "retention or the cleaner took it; run the command again"),
    errors.CleaningAborted: (Failure, "run the command again"),
    errors.CorruptError: (Failure, "the records before and after it are still served"),
    errors.CannotUndelete: (Failure, "`kafkafs undelete --list` shows what can be"),
    errors.TopicExists: (Failure, ""),
    errors.Refused: (Failure, ""),
    errors.BadLine: (Failure, ""),
    errors.InvalidTopic: (WrongUsage, ""),
    errors.InvalidPartitions: (WrongUsage, ""),
}


def ending(error: type[errors.StorageError]) -> tuple[type[Failure], str]:
    """How the program ends with such an error, and the advice, "" for none."""
    return next(ENDINGS[base] for base in error.__mro__ if base in ENDINGS)


def failure(error: Exception, place: str = "") -> Failure:
    """The line for `error`, met while working on `place` (a path in the tree, a directory)."""
    if isinstance(error, Failure):
        return error
    where = f"{place}: " if place else ""
    if isinstance(error, errors.StorageError):
        kind, advice = ending(type(error))
        # An error that asks "did you mean …?" advises better than its class does.
        has_advice = str(error).endswith("?") or not advice
        return kind(where + str(error) + ("" if has_advice else f"; {advice}"))
    if isinstance(error, errnos.TreeError):
        return Failure(where + str(error))
    if isinstance(error, OSError):
        return Failure(where + _os_error(error))
    return Failure(
        f"{where}internal error: {type(error).__name__}: {error}; "
        "please report it with what --debug prints"
    )


def tell(error: Exception, place: str = "") -> int:
    """Puts the line on stderr where the work goes on all the same; the exit code in the end."""
    told = failure(error, place)
    click.echo(told.line(), err=True)
    return told.exit_code


def warn(message: str) -> None:
    """Puts a line on stderr about something that is no failure."""
    click.echo(Failure(message).line(), err=True)


def _os_error(error: OSError) -> str:
    what = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in (errno.EACCES, errno.EPERM):
        what += "; run as a user who may read the log directory, such as the broker's"
    # The engine's errors have the name of the file. What has none could not be written.
    name = error.filename
    return f"{os.fsdecode(name) if isinstance(name, str | bytes) else 'stdout'}: {what}"


def usage_line(error: click.UsageError) -> str:
    """Click's usage error on one line, with the command whose help would have told."""
    command = error.ctx.command_path if error.ctx else "kafkafs"
    message = " ".join(error.format_message().split()).rstrip(".")
    if message[1:2].islower():
        message = message[0].lower() + message[1:]
    mark = "" if message.endswith("?") else ";"
    return f"{command}: {errors.printable(message)}{mark} see `{command} --help`"
