"""Opens the engine, the tree and its nodes from the arguments of a verb."""

from __future__ import annotations

import logging
import os
import posixpath
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from types import FrameType
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from kafkafs.mount.vfs.errnos import NoSuchName, TreeError
from kafkafs.storage import StorageError, TopicPartition, delivering, interrupt

from . import failures, output
from .words import Config, plain_path

if TYPE_CHECKING:
    from kafkafs.mount.node import Node
    from kafkafs.mount.tree import Tree
    from kafkafs.storage import CorruptError, Engine, LogManager, MetaProperties, RecoveryPlan

# The limit of Linux. Links in the tree lead to records, so one step is normal.
_MAX_LINKS = 40
# How long to wait for an unmounted daemon to release its directories, and how often to check.
_ENDING_SECONDS = 30.0
_LOOK_SECONDS = 0.05
# Sent by Ctrl-C, by a shutdown or `timeout`, and by a closed terminal.
_ENDING: Final = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
_CLOSING: Final = b"kafkafs: closing the log directories\n"


class Opening(TypedDict, total=False):
    """How LogManager opens directories. `recovered` receives the plans by which it recovers
    partitions after an unclean shutdown."""

    owner: MetaProperties | None
    recovered: Callable[[TopicPartition, RecoveryPlan], None]
    finds_deleted: bool
    maintain: bool
    unregistered: bool


def open_engine(
    log_dirs: tuple[str, ...], configs: Iterable[Config] = (), at: int | None = None
) -> Engine:
    """Opens the directories read-only, without a lock, as of the time `at` (ms since 1970) if
    given. Raises LogDirError and ConfigError."""
    from kafkafs.storage import Engine

    return Engine(log_dirs, dict(configs), at)


def open_writable(
    log_dirs: tuple[str, ...], configs: Iterable[Config] = (), **opening: Unpack[Opening]
) -> LogManager:
    """Locks the directories and recovers partitions after an unclean shutdown; losses are reported
    on stderr. For `opening` and the exceptions see LogManager."""
    from kafkafs.storage import LogManager

    lost: list[tuple[TopicPartition, CorruptError]] = []
    recovered = opening.get("recovered")

    def note(key: TopicPartition, plan: RecoveryPlan) -> None:
        lost.extend((key, fault) for fault in plan.faults)
        if recovered is not None:
            recovered(key, plan)

    opening["recovered"] = note
    with output.bar("opening partitions") as on_progress:
        engine = _when_free(
            lambda: LogManager(log_dirs, dict(configs), loaded=on_progress, **opening)
        )
    for (topic, number), fault in sorted(lost, key=itemgetter(0)):
        failures.warn(f"{topic}-{number}: truncated by recovery: {fault}")
    return engine


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Makes terminating signals raise KeyboardInterrupt in the block, in the main thread, after the
    current change is complete, so that the block can close its log directories. Later signals only
    print a message. After the block, the first signal takes its normal effect. Signals that are
    ignored stay ignored, as nohup(1) requires."""
    heard: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        heard.append(number)
        if len(heard) == 1:
            interrupt()
        else:
            os.write(2, _CLOSING)  # not print(), which the signal may have interrupted

    before = {each: signal.getsignal(each) for each in _ENDING}
    usual = (signal.SIG_DFL, signal.default_int_handler)
    mine = [each for each, handler in before.items() if handler in usual]
    for each in mine:
        signal.signal(each, end)
    try:
        with delivering():
            yield
    finally:
        for each in mine:
            signal.signal(each, before[each])
        if heard:
            os.kill(os.getpid(), heard[0])


@contextmanager
def writing(
    log_dirs: tuple[str, ...], configs: Iterable[Config] = (), **opening: Unpack[Opening]
) -> Iterator[LogManager]:
    """Opens the engine as `open_writable` does and closes it cleanly after the block, even if a
    signal ends the process. NotClosed after a durable change is only a warning: if it failed the
    verb, users would repeat it, and append the records twice."""
    from kafkafs.storage import NotClosed

    try:
        with ending_in_order(), open_writable(log_dirs, configs, **opening) as engine:
            yield engine
    except NotClosed as error:
        failures.warn(str(error))


def _when_free(open_engine: Callable[[], LogManager]) -> LogManager:
    """Opens the engine, waiting for a daemon that still holds the directories after umount(8):
    umount(8) returns before the daemon has written everything."""
    from kafkafs.mount.session.mount_table import is_ending
    from kafkafs.storage import LogDirLocked

    deadline = time.monotonic() + _ENDING_SECONDS
    waits = False
    while True:
        try:
            return open_engine()
        except LogDirLocked as locked:
            if time.monotonic() > deadline or not (waits or is_ending(locked.pid)):
                raise
            if not waits:
                failures.warn(
                    f"{locked.path}: waiting for process {locked.pid}, "
                    "a mount that is shutting down"
                )
            waits = True
        time.sleep(_LOOK_SECONDS)


def open_tree(
    log_dirs: tuple[str, ...],
    configs: Iterable[Config] = (),
    isolation: str = "read_committed",
    at: int | None = None,
) -> Tree:
    """Returns the tree that a mount of the directories would show, as of the time `at` (ms since
    1970) if given. When the verb ends, replicas that are not served are reported."""
    from kafkafs.mount.options import MountOptions
    from kafkafs.mount.tree import Tree
    from kafkafs.storage import Isolation

    # The verb reports damage itself; the tree's log is for mounts.
    logging.getLogger("kafkafs").addHandler(logging.NullHandler())
    engine = open_engine(log_dirs, configs, at)
    check_schemas(engine)
    context = click.get_current_context(silent=True)  # None while a shell completes
    if context is not None:
        context.call_on_close(partial(failures.warn_of_unserved, engine))
    tree = Tree(engine, MountOptions(isolation=Isolation(isolation), at_ms=at))
    tree.catalog.previews.show = partial(output.bar, "previewing compaction")
    return tree


def check_schemas(engine: Engine) -> None:
    """Raises ConfigError if schemas that are given as files cannot be used."""
    from kafkafs.storage import reader_config

    if reader_config(engine.configs).kafkafs_schemas:
        from kafkafs.storage import check_supplied  # which few commands need

        check_supplied(engine)


def resolve(tree: Tree, path: str) -> Node:
    """Returns the node at `path`, following links."""
    from kafkafs.mount.node import Link

    for _ in range(_MAX_LINKS):
        node = tree.resolve(path)
        if not isinstance(node, Link):
            return node
        path = plain_path(posixpath.normpath(f"{posixpath.dirname(path)}/{node.target()}"))
    raise NoSuchName(path)


def for_each(paths: Iterable[str], work: Callable[[str], int | None]) -> int:
    """Runs `work` on every path, reporting errors without stopping, and returns the exit code."""
    code = 0
    for path in paths:
        try:
            code = work(path) or code
        except (failures.Failure, StorageError, TreeError, OSError) as error:
            if isinstance(error, OSError) and error.filename is None:
                raise  # from stdout: it would fail for every path
            code = failures.report(error, path or "/")
    return code
