"""Growth and deletion seen: readers that wait are woken, the kernel's caches are told.

Nothing tells a reader of a broker's directory that it changed, so it is looked at: two system calls
for a partition in which nothing happened, and only for partitions whose records somebody looked up.

What the kernel must forget when records or segments go is not listed anywhere (see `inodes.py`).
But it forgets everything below a directory when it is told to forget the directory's name, except
for files that are open at that moment; and those we know.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

import pyfuse3
import trio

from kafkafs.storage.errors import StorageError, UnknownPartition

from ..catalog import Catalog
from ..nodes.member import Member, member_inode
from ..nodes.node import Node
from ..nodes.record import RecordFile
from ..nodes.segments import SegmentFile
from ..partition import Partition, Seen
from . import memory

logger = logging.getLogger(__name__)

#: Seconds between two looks at partitions that somebody follows, and at all others. With BRIEFLY,
#: the time for which names are believed, the second stays below one second.
FOLLOWED_SECONDS: Final = 0.1
OTHERS_SECONDS: Final = 0.4
#: After so long without a look-up a partition is no longer looked at, once the kernel has forgotten
#: its names: of thousands of partitions that were visited few are in use.
VISIT_SECONDS: Final = 30.0

#: How often files that were removed are let go of, so that their room on the disk is free, and
#: memory is given back.
SWEEP_SECONDS: Final = 10.0

Name = tuple[int, bytes]  # a directory's inode number, a name in it
# Files whose names the kernel keeps for ever, and cannot forget with their directory while open.
_HELD: Final = (RecordFile, SegmentFile)


class Watch:
    """Looks at the partitions in use while `run` runs. The event loop alone uses it."""

    def __init__(self, catalog: Catalog, open_nodes: Callable[[], Iterable[Node]]) -> None:
        """`open_nodes`: the nodes that are open now."""
        self._catalog = catalog
        self._open_nodes = open_nodes
        self._past: dict[Partition, Seen] = {}
        self._changes: dict[Partition, trio.Event] = {}
        self._ending = False

    @property
    def is_ending(self) -> bool:
        return self._ending

    def next_change(self, partition: Partition) -> trio.Event:
        """Set when the partition has changed after this call, or the mount ends."""
        return self._changes.setdefault(partition, trio.Event())

    def end(self) -> None:
        """Wake everybody who waits; nobody will wait again."""
        self._ending = True
        for event in self._changes.values():
            event.set()

    async def run(self) -> None:
        """Look until cancelled."""
        look_at_all = sweep = -math.inf
        while True:
            await trio.sleep(FOLLOWED_SECONDS if self._changes else OTHERS_SECONDS)
            now = trio.current_time()
            if now - look_at_all < OTHERS_SECONDS * 0.9:
                await self._look_at(list(self._changes))
                continue
            look_at_all = now
            await self._leave()
            await self._look_at(self._visited())
            if now - sweep >= SWEEP_SECONDS:
                sweep = now
                await trio.to_thread.run_sync(self._sweep)

    def _sweep(self) -> None:
        try:
            self._catalog.engine.let_go_of_removed()
        except (StorageError, OSError) as error:
            logger.debug("nothing could be let go of: %s", error)
        memory.give_back()

    def _visited(self) -> list[Partition]:
        """The partitions of which the kernel may know names."""
        since = monotonic() - VISIT_SECONDS
        held = {node.partition for node in self._open_nodes() if isinstance(node, _HELD)}
        return [
            partition
            for partition in self._catalog.in_use()
            if partition.is_known
            and (partition.visited_at >= since or partition in held or partition in self._changes)
        ]

    async def _leave(self) -> None:
        """Stop looking at partitions that nobody visits, when the kernel has forgotten them."""
        visited = set(self._visited())
        left = [partition for partition in self._past if partition not in visited]
        for partition in left:
            del self._past[partition]
        if left:
            names = list(self._names_to_forget(left))
            await trio.to_thread.run_sync(_forget, names)

    async def _look_at(self, partitions: list[Partition]) -> None:
        if not partitions:
            return
        found = await trio.to_thread.run_sync(_look, self._catalog, partitions)
        lost: list[Partition] = []
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

    def _wake(self, partition: Partition) -> None:
        event = self._changes.pop(partition, None)
        if event is not None:
            event.set()

    def _names_to_forget(self, lost: list[Partition]) -> Iterable[Name]:
        lost = [each for each in lost if each.changes is None]  # else no name is believed
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


def _look(catalog: Catalog, partitions: list[Partition]) -> dict[Partition, Seen | None]:
    """What the partitions are like now; those that cannot be looked at are left out."""
    found: dict[Partition, Seen | None] = {}
    for partition in partitions:
        try:
            found[partition] = partition.seen() if catalog.is_current(partition) else None
        except UnknownPartition:
            found[partition] = None
        except (StorageError, OSError) as error:
            logger.debug("%r cannot be looked at: %s", partition, error)
    return found


def _forget(names: list[Name]) -> None:
    """Make the kernel forget names. It may wait for requests that are being answered, so this is no
    work for the event loop."""
    for directory, name in names:
        try:
            pyfuse3.invalidate_entry(pyfuse3.InodeT(directory), pyfuse3.FileNameT(name))
        except FileNotFoundError:
            continue  # it did not know the name
        except OSError as error:
            logger.debug("the kernel did not forget %r: %s", name, error)
