"""Mounts log directories, serves them until the mount ends, and unmounts."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

import pyfuse3
import trio

from kafkafs.storage import Engine, absolute_path, printable

from ..fuse import memory
from ..fuse.changing_operations import ChangingOperations
from ..fuse.operations import Operations, ReadOnlyOperations
from ..options import MountOptions
from ..tree import Tree
from ..writes.changes import Changes
from .daemon import Ready, log_recent, log_to_stderr, run_in_background
from .file_limit import raise_file_limit
from .fuse_obstacle import fuse_obstacle
from .mountpoint import MountError, check, clear, unmount

__all__ = ["MountError", "check", "mount", "unmount"]

logger = logging.getLogger(__name__)

# The most requests in progress; those of `follow` readers mostly wait. Each idle task costs every
# request a pass of the event loop.
_MAX_TASKS: Final = 4096
_MIN_TASKS: Final = 1
# The signals that end a mount. They also end programs with libfuse's own loop, and a broker.
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

MakeEngine = Callable[[Sequence[str]], Engine]


def mount(
    log_dirs: Sequence[str],
    mountpoint: str,
    options: MountOptions,
    *,
    foreground: bool = False,
    make_engine: MakeEngine = Engine,
) -> None:
    """Mounts `log_dirs`. Raises MountError or StorageError.

    In the foreground this returns when the mount has ended; otherwise as soon as it answers, and a
    daemon serves it.
    """
    clear(mountpoint)
    check(log_dirs, mountpoint)
    mountpoint = os.path.abspath(mountpoint)
    paths = [absolute_path(path) for path in log_dirs]

    def serve(ready: Ready) -> None:
        raise_file_limit()
        memory.retain_freed()
        recent_log = log_recent()
        with _signals_as_before(), closing(make_engine(paths)) as engine:
            changes = _begin_changes(engine, options)
            tree = Tree(engine, options, changes=changes)
            tree.catalog.recent_log = recent_log
            try:
                _unwrapped(lambda: trio.run(_session, tree, mountpoint, options, ready))
            finally:
                if changes is not None:
                    changes.close()

    if foreground:
        log_to_stderr(options)
        serve(lambda: logger.info("%s is mounted", printable(mountpoint)))
    else:
        run_in_background(serve, options)
        _wait_until_it_answers(mountpoint)


@contextmanager
def _signals_as_before() -> Iterator[None]:
    """Restores the handlers of the signals that end a mount after the block."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # else Python did not install it
                signal.signal(number, handler)


def _begin_changes(engine: Engine, options: MountOptions) -> Changes | None:
    """Starts a writable mount's engine and returns its changes; None for a read-only mount."""
    if not options.writable:
        return None
    from kafkafs.storage import LogManager

    assert isinstance(engine, LogManager), "a writable mount needs an engine that writes"
    engine.start()
    return Changes(engine, options)


def _wait_until_it_answers(mountpoint: str) -> None:
    """Waits until the mount answers. The daemon must not do this: if it were killed before it
    answers, its own waiting thread would keep it, and the mount, from ever ending."""
    try:
        os.stat(mountpoint)
    except OSError as error:
        why = f"the mount does not answer: {error.strerror}; the daemon's log may say why"
        raise MountError(f"{printable(mountpoint)}: {why}") from None


def _unwrapped(run: Callable[[], None]) -> None:
    """Runs `run` and unwraps its error, which each nursery puts into a group of one."""
    try:
        run()
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        try:
            raise error from None
        finally:
            del error  # breaks the reference cycle with this frame


# 256 pages, the most that Linux requests from a FUSE daemon at once.
_READ_AHEAD_KB: Final = 1024


async def _session(tree: Tree, mountpoint: str, options: MountOptions, ready: Ready) -> None:
    """Mounts and serves until unmounted or ended by a signal."""
    ending = _heard()
    async with trio.open_nursery() as nursery:
        kind = ChangingOperations if options.writable else ReadOnlyOperations
        operations: Operations = kind(tree, nursery)
        # A signal between mounting and listening for it would leave the mount behind.
        signal.pthread_sigmask(signal.SIG_BLOCK, ending)
        _init(operations, mountpoint, _kernel_options(tree, options))
        try:
            await nursery.start(_end_on_signal, operations, ending)
            nursery.start_soon(operations.watch.run)
            nursery.start_soon(_call_when_ready, mountpoint, ready)
            await pyfuse3.main(_MIN_TASKS, _MAX_TASKS)
        finally:
            operations.end()
            pyfuse3.close(unmount=True)
            nursery.cancel_scope.cancel()


def _init(operations: Operations, mountpoint: str, options: set[str]) -> None:
    try:
        pyfuse3.init(operations, mountpoint, options)
    except RuntimeError as error:
        raise MountError(f"{printable(mountpoint)}: {_why_not(error)}") from None


def _why_not(error: RuntimeError) -> str:
    """Returns why mounting failed: libfuse only prints its reasons to stderr, so the frequent ones
    are diagnosed here."""
    return fuse_obstacle() or f"{error}; see the lines printed before for the reason"


def _heard() -> list[signal.Signals]:
    """Returns the signals to listen for. An ignored SIGHUP stays ignored, for nohup(1)."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in _ENDING if not (number == signal.SIGHUP and is_ignored)]


async def _end_on_signal(
    operations: Operations,
    ending: Sequence[signal.Signals],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    # For after the receiver below. It must be set here: earlier, a signal delivered to a thread of
    # the engine would be lost.
    for each in ending:
        signal.signal(each, _ends_already)
    with trio.open_signal_receiver(*ending) as signals:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)
        task_status.started()
        async for number in signals:
            logger.info("%s: unmounting", signal.Signals(number).name)
            operations.end()
            pyfuse3.terminate()


def _ends_already(number: int, frame: object) -> None:
    """Handles further signals by only logging: the log directories are being closed, and an unclean
    shutdown would require recovery at the next start."""
    name = signal.Signals(number).name
    logger.info("%s: unmounted already, closing the log directories", name)


async def _call_when_ready(mountpoint: str, ready: Ready) -> None:
    """Calls `ready` once the mount answers a `stat`."""
    try:
        status = await trio.to_thread.run_sync(os.stat, mountpoint, abandon_on_cancel=True)
    except OSError:  # ended before it answered
        return
    _read_ahead(status.st_dev)
    ready()


def _read_ahead(device: int) -> None:
    """Sets the kernel's read-ahead to the size of the largest request. The default is an eighth of
    that, and makes the first read of a stream a third slower. Only root may set it."""
    number = f"{os.major(device)}:{os.minor(device)}"
    with (
        contextlib.suppress(OSError),
        open(f"/sys/class/bdi/{number}/read_ahead_kb", "w", encoding="ascii") as file,
    ):
        file.write(str(_READ_AHEAD_KB))


def _kernel_options(tree: Tree, options: MountOptions) -> set[str]:
    source = tree.catalog.engine.log_dirs.dirs[0].path
    source = source.replace("\\", "\\\\").replace(",", "\\,")
    flags = {"default_permissions", "subtype=kafkafs", f"fsname={source}"}
    flags.update(options.kernel_flags)
    if not options.writable:
        flags.add("ro")
    if options.allow_other:
        flags.add("allow_other")
    return flags
