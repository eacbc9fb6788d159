"""Polls partitions for growth and deletion, wakes waiting readers, invalidates kernel caches.

A reader of a broker's directory gets no notification of changes, so partitions are polled: two
system calls for one that did not change, and only those whose records were looked up.

No list exists of the names that the kernel has to forget when records or segments are deleted (see
`inodes.py`). But invalidating a directory's name makes the kernel forget everything below it except
files that are open at that moment, and those we know.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

import pyfuse3
import trio

from kafkafs.storage import StorageError, UnknownPartition

from ..catalog import Catalog
from ..node import Node
from ..nodes.member import Member, member_inode
from ..nodes.record import RecordFile
from ..nodes.segments import SegmentFile
from ..partition import MountedPartition, Seen
from . import memory

logger = logging.getLogger(__name__)

#: Seconds between two polls of followed partitions, and of all others. The latter plus BRIEFLY, the
#: time for which the kernel may cache names, is less than one second.
FOLLOWED_SECONDS: Final = 0.1
OTHERS_SECONDS: Final = 0.4
#: After this long without a lookup a partition is no longer polled, once the kernel has forgotten
#: its names: of thousands of visited partitions only a few are in use.
VISIT_SECONDS: Final = 30.0

#: Seconds between two sweeps, which close removed files, so that their disk space becomes free, and
#: return memory to the kernel.
SWEEP_SECONDS: Final = 10.0

Name = tuple[int, bytes]  # a directory's inode number, a name in it
# Files whose names the kernel caches for ever. While they are open, invalidating their directory
# does not make it forget them.
_HELD: Final = (RecordFile, SegmentFile)


class Watch:
    """Polls the partitions in use while `run` runs. Only the event loop uses it."""

    def __init__(self, catalog: Catalog, open_nodes: Callable[[], Iterable[Node]]) -> None:
        """`open_nodes` returns the nodes that are open now."""
        self._catalog = catalog
        self._open_nodes = open_nodes
        self._past: dict[MountedPartition, Seen] = {}
        self._changes: dict[MountedPartition, trio.Event] = {}
        self._ending = False

    @property
    def is_ending(self) -> bool:
        return self._ending

    def next_change(self, partition: MountedPartition) -> trio.Event:
        """Returns an event that is set when the partition changes or the mount ends."""
        return self._changes.setdefault(partition, trio.Event())

    def end(self) -> None:
        """Wakes all waiting readers; none will wait again."""
        self._ending = True
        for event in self._changes.values():
            event.set()

    async def run(self) -> None:
        """Polls until cancelled."""
        checked_all = sweep = -math.inf
        while True:
            await trio.sleep(FOLLOWED_SECONDS if self._changes else OTHERS_SECONDS)
            now = trio.current_time()
            if now - checked_all < OTHERS_SECONDS * 0.9:
                await self._check(list(self._changes))
                continue
            checked_all = now
            await self._leave()
            await self._check(self._visited())
            if now - sweep >= SWEEP_SECONDS:
                sweep = now
                await trio.to_thread.run_sync(self._sweep)

    def _sweep(self) -> None:
        try:
            self._catalog.engine.close_removed()
        except (StorageError, OSError) as error:
            logger.debug("removed files could not be closed: %s", error)
        memory.trim()

    def _visited(self) -> list[MountedPartition]:
        """Returns the partitions of which the kernel may know names."""
        since = monotonic() - VISIT_SECONDS
        held = {node.partition for node in self._open_nodes() if isinstance(node, _HELD)}
        return [
            partition
            for partition in self._catalog.in_use()
            if partition.has_view
            and (partition.visited_at >= since or partition in held or partition in self._changes)
        ]

    async def _leave(self) -> None:
        """Stops polling partitions that are no longer visited and makes the kernel forget them."""
        visited = set(self._visited())
        left = [partition for partition in self._past if partition not in visited]
        for partition in left:
            del self._past[partition]
        if left:
            names = list(self._names_to_forget(left))
            await trio.to_thread.run_sync(_forget, names)

    async def _check(self, partitions: list[MountedPartition]) -> None:
        if not partitions:
            return
        found = await trio.to_thread.run_sync(_states, self._catalog, partitions)
        lost: list[MountedPartition] = []
        for partition, seen in found.items():
            past = self._past.get(partition)
            if seen is None:
                self._past.pop(partition, None)
                self._catalog.forget(partition)
            else:
                self._past[partition] = seen
            if seen is not past or seen is None:
                self._wake(partition)
            if seen is None or seen.losses != (past.losses if past is not None else 0):
                lost.append(partition)
        if lost:
            names = list(self._names_to_forget(lost))
            await trio.to_thread.run_sync(_forget, names)

    def _wake(self, partition: MountedPartition) -> None:
        event = self._changes.pop(partition, None)
        if event is not None:
            event.set()

    def _names_to_forget(self, lost: list[MountedPartition]) -> Iterable[Name]:
        # In a writable mount the kernel caches no names.
        lost = [each for each in lost if not each.is_writable]
        for node in self._open_nodes():
            if not isinstance(node, _HELD) or node.partition not in lost:
                continue
            if isinstance(node, RecordFile):
                yield member_inode(node.partition, Member.OFFSET), node.name.encode()
            else:
                yield member_inode(node.partition, Member.SEGMENTS), node.name_bytes
        for partition in lost:
            directory = member_inode(partition, Member.DIRECTORY)
            yield directory, b"offset"
            yield directory, b"segments"


def _states(
    catalog: Catalog, partitions: list[MountedPartition]
) -> dict[MountedPartition, Seen | None]:
    """Returns each partition's present state, None if it was deleted; partitions that could not be
    examined are left out."""
    found: dict[MountedPartition, Seen | None] = {}
    for partition in partitions:
        try:
            found[partition] = partition.seen() if catalog.is_current(partition) else None
        except UnknownPartition:
            found[partition] = None
        except (StorageError, OSError) as error:
            logger.debug("%r cannot be examined: %s", partition, error)
    return found


def _forget(names: list[Name]) -> None:
    """Makes the kernel forget names. This may wait for requests that are being answered, so the
    event loop must not call it."""
    for directory, name in names:
        try:
            pyfuse3.invalidate_entry(pyfuse3.InodeT(directory), pyfuse3.FileNameT(name))
        except FileNotFoundError:
            continue  # it did not know the name
        except OSError as error:
            logger.debug("the kernel did not forget %r: %s", name, error)
