"""Runs a mount as a daemon that detaches once it is ready, and configures its logging."""

from __future__ import annotations

import contextlib
import errno
import logging
import logging.handlers
import os
import sys
from collections.abc import Callable
from typing import Final, NoReturn

from kafkafs.storage import StorageError, printable

from ..monitoring.recent_log import RecentLog
from ..options import MountOptions
from .mountpoint import MountError

logger = logging.getLogger(__name__)

# What the daemon sends its parent once it is ready. Anything else is an error's line.
_READY: Final = b"\0"
_SYSLOG: Final = "/dev/log"
_UNWANTED_ANSWER: Final = f"fuse_reply_* failed with {os.strerror(errno.ENOENT)}"

Ready = Callable[[], None]


def run_in_background(serve: Callable[[Ready], None], options: MountOptions) -> None:
    """Runs `serve` in a daemon; returns when `serve` calls its argument.

    Raises MountError with the error's line if the daemon exits before. No thread may have been
    started yet.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_daemon(serve, options, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        message = pipe.read()
    if message != _READY:
        os.waitpid(child, 0)
        raise MountError(message.decode("utf-8", "replace") or "the daemon exited at once")


def _be_daemon(serve: Callable[[Ready], None], options: MountOptions, writing: int) -> NoReturn:
    def ready() -> None:
        with open(os.devnull, "r+b", buffering=0) as null:
            for number in (0, 1, 2):
                os.dup2(null.fileno(), number)
        os.write(writing, _READY)
        os.close(writing)

    status = 1
    try:
        os.setsid()
        log_as_daemon(options)
        os.chdir("/")
        serve(ready)
        status = 0
    except (MountError, StorageError, OSError) as error:
        logger.error("%s", printable(str(error)))
        _say(writing, str(error))
    except BaseException as error:
        logger.critical("exiting because of a bug in kafkafs", exc_info=error)
        _say(writing, f"internal error: {type(error).__name__}: {error}")
    finally:
        logging.shutdown()
        os._exit(status)


def _say(writing: int, message: str) -> None:
    """Sends a message to the parent, if it is still listening."""
    with contextlib.suppress(OSError):
        os.write(writing, printable(message).encode("utf-8", "replace"))


def log_to_stderr(options: MountOptions) -> None:
    """Logs to stderr, unless the options name a file."""
    _log_through(logging.StreamHandler() if not options.log else _file(options), options)


def log_as_daemon(options: MountOptions) -> None:
    """Logs to the file that the options name, otherwise to syslog if there is one."""
    if options.log:
        _log_through(_file(options), options)
    elif os.path.exists(_SYSLOG):
        _log_through(logging.handlers.SysLogHandler(_SYSLOG), options)
    else:
        _log_through(logging.NullHandler(), options)


def log_recent() -> RecentLog:
    """Also keeps what is logged from now on in memory."""
    recent = RecentLog()
    recent.addFilter(_is_news)
    logging.getLogger().addHandler(recent)
    return recent


def _is_news(record: logging.LogRecord) -> bool:
    """Returns false for pyfuse3's message about a late reply: the kernel returns ENOENT for a reply
    that nothing waits for, because the request was interrupted or the mount has ended."""
    if not record.name.startswith("pyfuse3"):
        return True
    return not record.getMessage().endswith(_UNWANTED_ANSWER)


def _file(options: MountOptions) -> logging.Handler:
    handler = logging.FileHandler(options.log, errors="backslashreplace")
    return _with_format(handler, "%(asctime)s %(levelname)s %(message)s")


def _with_format(handler: logging.Handler, text: str) -> logging.Handler:
    handler.setFormatter(logging.Formatter(text))
    return handler


def _log_through(handler: logging.Handler, options: MountOptions) -> None:
    if handler.formatter is None:
        _with_format(handler, "kafkafs: %(levelname)s: %(message)s")
    handler.addFilter(_is_news)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if options.debug else logging.INFO)
