"""From the arguments of a verb to the engine, the tree and the nodes in it."""

from __future__ import annotations

import logging
import posixpath
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import click

from kafkafs.mount.errnos import NoSuchName, TreeError
from kafkafs.storage.errors import StorageError, UnknownPartition, UnknownTopic

from . import failures, output
from .params import Setting, plain_path
from .signals import ending_in_order

if TYPE_CHECKING:
    from kafkafs.mount.nodes.node import Node
    from kafkafs.mount.tree import Tree
    from kafkafs.storage.engine import Engine
    from kafkafs.storage.errors import CorruptError
    from kafkafs.storage.format.checkpoints import MetaProperties
    from kafkafs.storage.log.recovery import RecoveryPlan
    from kafkafs.storage.writable_engine import WritableEngine

# As deep as Linux follows links. Ours lead to records, so one step is the rule.
_MAX_LINKS = 40
# How long a mount that has ended may hold its directories, and how often is looked.
_ENDING_SECONDS = 30.0
_LOOK_SECONDS = 0.05


def open_engine(log_dirs: tuple[str, ...], settings: Iterable[Setting] = ()) -> Engine:
    """Reads only, and takes no lock. LogDirError, ConfigError."""
    from kafkafs.storage.engine import Engine

    return Engine(log_dirs, dict(settings))


def open_writable(
    log_dirs: tuple[str, ...],
    settings: Iterable[Setting] = (),
    recovered: Callable[[tuple[str, int], RecoveryPlan], None] | None = None,
    owner: MetaProperties | None = None,
    *,
    finds_deleted: bool = False,
    maintain: bool = False,
    unregistered: bool = False,
) -> WritableEngine:
    """Holds the directories, and recovers what was not closed in good order: `recovered` is told of
    it; what was lost goes to stderr. `owner`, `finds_deleted`, `maintain`, `unregistered` and what
    is raised: see WritableEngine."""
    from kafkafs.storage.writable_engine import WritableEngine

    lost: list[tuple[tuple[str, int], CorruptError]] = []

    def note(key: tuple[str, int], plan: RecoveryPlan) -> None:
        lost.extend((key, fault) for fault in plan.faults)
        if recovered is not None:
            recovered(key, plan)

    with output.bar("opening partitions") as told:
        engine = _when_free(
            lambda: WritableEngine(
                log_dirs,
                dict(settings),
                owner=owner,
                loaded=told,
                recovered=note,
                finds_deleted=finds_deleted,
                maintain=maintain,
                unregistered=unregistered,
            )
        )
    for (topic, number), fault in sorted(lost, key=itemgetter(0)):
        failures.warn(f"{topic}-{number}: cut in recovery: {fault}")
    return engine


@contextmanager
def writing(
    log_dirs: tuple[str, ...],
    settings: Iterable[Setting] = (),
    recovered: Callable[[tuple[str, int], RecoveryPlan], None] | None = None,
    owner: MetaProperties | None = None,
    *,
    finds_deleted: bool = False,
) -> Iterator[WritableEngine]:
    """The engine of `open_writable` for a verb's block. It is closed in good order also if a signal
    ends the process. That it could not be, after a change that is durable, is a warning: a verb
    that failed for it would be repeated, and would append its records twice."""
    from kafkafs.storage.errors import NotClosed

    try:
        with (
            ending_in_order(),
            open_writable(
                log_dirs, settings, recovered, owner, finds_deleted=finds_deleted
            ) as engine,
        ):
            yield engine
    except NotClosed as error:
        failures.warn(str(error))


def _when_free(open_engine: Callable[[], WritableEngine]) -> WritableEngine:
    """Waits a while where the directories are held by a mount that has ended: umount(8) returns
    before its daemon has written all."""
    from kafkafs.mount.mounting.mount_table import is_ending
    from kafkafs.storage.errors import LogDirLocked

    deadline = time.monotonic() + _ENDING_SECONDS
    waits = False
    while True:
        try:
            return open_engine()
        except LogDirLocked as locked:
            if time.monotonic() > deadline or not (waits or is_ending(locked.pid)):
                raise
            if not waits:
                failures.warn(f"{locked.path}: waiting for process {locked.pid}, a mount that ends")
            waits = True
        time.sleep(_LOOK_SECONDS)


def open_tree(
    log_dirs: tuple[str, ...],
    settings: Iterable[Setting] = (),
    isolation: str = "read_committed",
    at: int | None = None,
) -> Tree:
    """What a mount of the same directories would show, at the time `at` (ms since 1970) where one
    is given."""
    from kafkafs.mount.options import MountOptions
    from kafkafs.mount.tree import Tree
    from kafkafs.storage.clock import SetClock
    from kafkafs.storage.log.transactions import Isolation

    # A verb tells of damage itself; what the tree logs is for a mount's log.
    logging.getLogger("kafkafs").addHandler(logging.NullHandler())
    engine = open_engine(log_dirs, settings)
    clock = None if at is None else SetClock(at)
    tree = Tree(engine, MountOptions(isolation=Isolation(isolation)), clock)
    tree.catalog.previews.show = partial(output.bar, "finding what compaction would leave")
    return tree


def refuse_at(paths: Iterable[str]) -> None:
    """Wrong usage if `--at` makes no difference to what one of `paths` in the tree shows."""
    for path in paths:
        match path.split("/"):
            case [_, _, "why.json"]:
                continue
            case [_, _, "compacted", *rest] if rest[:1] != ["latest"]:
                continue
        raise click.UsageError(
            f"--at is not possible for {path or '/'}, which shows what the log holds now;"
            " it is possible for TOPIC/PARTITION/why.json and for TOPIC/PARTITION/compacted/"
            " and what is in it except latest/"
        )


def resolve(tree: Tree, path: str) -> Node:
    """The node at `path`; where that is a link, the node that it leads to."""
    from kafkafs.mount.nodes.node import Link

    for _ in range(_MAX_LINKS):
        node = tree.resolve(path)
        if not isinstance(node, Link):
            return node
        path = plain_path(posixpath.normpath(f"{posixpath.dirname(path)}/{node.target()}"))
    raise NoSuchName(path)


def for_each(paths: Iterable[str], work: Callable[[str], int | None]) -> int:
    """Does `work` on every path, whatever becomes of the others; the exit code."""
    code = 0
    for path in paths:
        try:
            code = work(path) or code
        except (failures.Failure, StorageError, TreeError, OSError) as error:
            if isinstance(error, OSError) and error.filename is None:
                raise  # stdout's: no other path would fare better
            code = failures.tell(error, path or "/")
    return code


def for_each_partition(
    keys: Iterable[tuple[str, int]],
    work: Callable[[tuple[str, int]], object],
    *,
    are_named: bool = True,
) -> int:
    """The same for partitions. Where they are all that there are, not `are_named` by the user, one
    that is deleted meanwhile is left out."""
    code = 0
    for key in keys:
        try:
            work(key)
        except (UnknownTopic, UnknownPartition) as error:
            if are_named:
                code = failures.tell(error, "{}-{}".format(*key))
        except (failures.Failure, StorageError, OSError) as error:
            code = failures.tell(error, "{}-{}".format(*key))
    return code
