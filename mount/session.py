"""Mounting, serving until the mount ends, unmounting."""

from __future__ import annotations

import contextlib
import errno
import logging
import logging.handlers
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import pyfuse3
import trio

from kafkafs.storage.engine import Engine
from kafkafs.storage.errors import StorageError, printable

from .operations import Operations
from .options import MountOptions
from .tree import Tree

logger = logging.getLogger(__name__)

# Requests answered at a time. Readers of `follow` are waiting most of theirs.
_MAX_TASKS: Final = 4096
_MIN_TASKS: Final = 8
_LINE_FORMAT: Final = "kafkafs: %(levelname)s: %(message)s"


class MountError(Exception):
    """A mount that cannot be made or ended; `str()` is one line that says why and what to do."""


def mount(
    log_dirs: Sequence[str],
    mountpoint: str,
    options: MountOptions,
    *,
    foreground: bool = False,
    make_engine: Callable[[Sequence[str]], Engine] = Engine,
) -> None:
    """Mount `log_dirs`; MountError or StorageError when that cannot be done.

    In the foreground this returns when the mount has ended; else as soon as it answers, and a
    daemon serves it.
    """
    check(log_dirs, mountpoint)
    if foreground:
        _log_to_stderr(options)
        _serve(make_engine(log_dirs), log_dirs, mountpoint, options, lambda: None)
    else:
        _in_background(
            lambda ready: _serve(make_engine(log_dirs), log_dirs, mountpoint, options, ready),
            options,
        )


def check(log_dirs: Sequence[str], mountpoint: str) -> None:
    """MountError when `mountpoint` is no place to mount on."""
    shown = printable(mountpoint)
    try:
        status = os.stat(mountpoint)
    except FileNotFoundError:
        raise MountError(f"{shown}: no such directory; create it first") from None
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            what = "a mount point whose daemon died"
            raise MountError(f"{shown}: {what}; run `kafkafs umount {shown}` first") from None
        raise MountError(f"{shown}: {os.strerror(error.errno or 0)}") from None
    if not os.path.isdir(mountpoint):
        raise MountError(f"{shown}: not a directory")
    for log_dir in log_dirs:
        if _is_inside(mountpoint, log_dir):
            where = printable(log_dir)
            raise MountError(f"{shown}: inside the log directory {where}; mount somewhere else")
    if _is_ours(mountpoint, status.st_dev):
        raise MountError(f"{shown}: kafkafs is mounted there already")


def _is_inside(path: str, directory: str) -> bool:
    inner, outer = os.path.realpath(path), os.path.realpath(directory)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def _is_ours(path: str, device: int) -> bool:
    """Whether `path`, on `device`, is the top of a kafkafs."""
    number = f"{os.major(device)}:{os.minor(device)}"
    return any(
        fields[2] == number and _type_of(fields) == "fuse.kafkafs" and fields[3] == "/"
        for fields in _mounts()
        if os.path.realpath(path) == _unescaped(fields[4])
    )


def _mounts() -> list[list[str]]:
    """The lines of /proc/self/mountinfo, split: 2 device, 3 root, 4 mount point, and after a `-`
    the type and the source."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        return [line.split() for line in lines]


def _type_of(fields: list[str]) -> str:
    return fields[fields.index("-") + 1]


def _unescaped(path: str) -> str:
    """The kernel writes blanks and backslashes as octal numbers."""
    for number in ("040", "011", "012", "134"):
        path = path.replace("\\" + number, chr(int(number, 8)))
    return path


# -- serving ------------------------------------------------------------------------------------


def _serve(
    engine: Engine,
    log_dirs: Sequence[str],
    mountpoint: str,
    options: MountOptions,
    ready: Callable[[], None],
) -> None:
    """Mount and serve until unmounted or told to end by SIGINT or SIGTERM."""
    _raise_file_limit()
    tree = Tree(engine, options)
    trio.run(_session, tree, log_dirs, mountpoint, options, ready)


async def _session(
    tree: Tree,
    log_dirs: Sequence[str],
    mountpoint: str,
    options: MountOptions,
    ready: Callable[[], None],
) -> None:
    async with trio.open_nursery() as nursery:
        operations = Operations(tree, nursery)
        try:
            pyfuse3.init(operations, mountpoint, _kernel_options(log_dirs, options))
        except RuntimeError as error:
            raise MountError(_why_not(mountpoint, error)) from None
        try:
            nursery.start_soon(_end_on_signal, operations)
            nursery.start_soon(operations.watch.run)
            nursery.start_soon(_tell_when_ready, mountpoint, ready)
            await pyfuse3.main(_MIN_TASKS, _MAX_TASKS)
        finally:
            operations.watch.end()
            pyfuse3.close(unmount=True)
            nursery.cancel_scope.cancel()


async def _end_on_signal(operations: Operations) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            logger.info("%s: unmounting", signal.Signals(number).name)
            operations.watch.end()
            pyfuse3.terminate()


async def _tell_when_ready(mountpoint: str, ready: Callable[[], None]) -> None:
    """The mount answers when `stat` comes back."""
    await trio.to_thread.run_sync(os.stat, mountpoint, abandon_on_cancel=True)
    ready()


def _kernel_options(log_dirs: Sequence[str], options: MountOptions) -> set[str]:
    source = os.path.abspath(log_dirs[0]).replace("\\", "\\\\").replace(",", "\\,")
    chosen = {"ro", "default_permissions", "subtype=kafkafs", f"fsname={source}"}
    chosen.update(options.kernel_flags)
    if options.allow_other:
        chosen.add("allow_other")
    return chosen


def _why_not(mountpoint: str, error: RuntimeError) -> str:
    shown = printable(mountpoint)
    if not os.path.exists("/dev/fuse"):
        return f"{shown}: /dev/fuse is missing; load the kernel's module `fuse`"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return f"{shown}: /dev/fuse may not be used by this user"
    if os.getuid() != 0 and shutil.which("fusermount3") is None:
        return f"{shown}: the program fusermount3 is missing; install the package fuse3"
    return f"{shown}: {error}; what was printed before says why"


def _raise_file_limit() -> None:
    """Open streams keep the segments that they show open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# -- the daemon ---------------------------------------------------------------------------------


def _in_background(serve: Callable[[Callable[[], None]], None], options: MountOptions) -> None:
    """Run `serve` in a daemon. Returns when it says that it is ready; MountError with its line when
    it ends before."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_daemon(serve, options, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        message = told.read()
    if message != _READY:
        os.waitpid(child, 0)
        raise MountError(message.decode("utf-8", "replace") or "the daemon died at once")


_READY: Final = b"\0"


def _be_daemon(
    serve: Callable[[Callable[[], None]], None], options: MountOptions, writing: int
) -> NoReturn:
    def ready() -> None:
        with open(os.devnull, "r+b", buffering=0) as null:
            for number in (0, 1, 2):
                os.dup2(null.fileno(), number)
        os.write(writing, _READY)
        os.close(writing)

    status = 1
    try:
        os.setsid()
        os.chdir("/")
        _log_for_daemon(options)
        serve(ready)
        status = 0
    except (MountError, StorageError) as error:
        _say(writing, str(error))
    except BaseException as error:
        logger.critical("ended by %r", error, exc_info=error)
        _say(writing, f"internal error: {type(error).__name__}: {error}")
    finally:
        logging.shutdown()
        os._exit(status)


def _say(writing: int, message: str) -> None:
    """To the parent, if it still listens."""
    with contextlib.suppress(OSError):
        os.write(writing, printable(message).encode("utf-8", "replace"))


def _log_to_stderr(options: MountOptions) -> None:
    _log_through(logging.FileHandler(options.log) if options.log else logging.StreamHandler(), options)


def _log_for_daemon(options: MountOptions) -> None:
    if options.log:
        handler: logging.Handler = logging.FileHandler(options.log)
    elif os.path.exists("/dev/log"):
        handler = logging.handlers.SysLogHandler("/dev/log")
    else:
        handler = logging.NullHandler()
    _log_through(handler, options)


def _log_through(handler: logging.Handler, options: MountOptions) -> None:
    handler.setFormatter(logging.Formatter(_LINE_FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if options.debug else logging.INFO)


# -- unmounting ---------------------------------------------------------------------------------


def unmount(mountpoint: str) -> None:
    """End the mount at `mountpoint`, also one whose daemon died. MountError when there is none."""
    shown = printable(mountpoint)
    point = os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(mountpoint))), os.path.basename(os.path.abspath(mountpoint)))
    if not any(_unescaped(fields[4]) == point and _type_of(fields).startswith("fuse") for fields in _mounts()):
        raise MountError(f"{shown}: nothing of kafkafs is mounted there")
    program = shutil.which("fusermount3")
    command = [program, "-u", "--", point] if program else ["umount", "--", point]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = " ".join(done.stderr.split()) or f"{command[0]} failed"
        raise MountError(f"{shown}: {why}")
