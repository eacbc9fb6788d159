"""The handlers that pyfuse3 calls: each finds the node, calls it and replies. No policy.

A handler runs in the event loop and answers at once if memory and cached pages suffice; everything
else runs in a thread (`CONCURRENCY.md`). Every error passes through `refusal`.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import wraps
from time import perf_counter
from typing import Any, Concatenate, Final, NoReturn, ParamSpec, TypeVar, cast

import pyfuse3
import trio

from kafkafs.storage import LogDirError, StorageError, printable, reader_config

from ..node import DirectoryNode, File, FixedFile, Link, MeasuredFile, Node
from ..nodes.record import RecordFile, ValueFile
from ..streams.following import FollowHandle
from ..streams.streams import PreparedStreamHandle, StreamHandle
from ..tree import Tree
from ..vfs import render
from ..vfs.errnos import (
    Invalid,
    IsADirectory,
    NameTooLong,
    NoSuchAttribute,
    NoSuchName,
    NotADirectory,
    Outgrown,
    PastEnd,
    ReadOnly,
    Stale,
    TreeError,
    errno_of,
)
from ..vfs.handles import Handle, Table
from .caches import LastLookups, PageCache, RecentRecords
from .entries import Owner
from .listing import Lister
from .measuring import Measuring
from .readers import AheadThreads, FollowReader, PreparedStreamReader, Reader, StreamReader
from .waiting import Waiting
from .watch import Watch

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
OperationsT = TypeVar("OperationsT", bound="Operations")
Handler = Callable[Concatenate[OperationsT, P], Coroutine[Any, Any, T]]

# When a call in the event loop takes longer than this because it read from the disk, calls run in
# threads for some time: page cache misses seldom come alone.
_LONG_SECONDS: Final = 0.002
_DISK_SECONDS: Final = 0.25
_MAX_NAME: Final = 255
# The most threads used by directories that may read a whole partition, so that others stay free.
_MUCH_THREADS: Final = 8
# The most threads that prepare file attributes such as sizes.
_MEASURING_THREADS: Final = 4


def _blocks_read() -> int:
    """Returns how often this thread has read from a disk so far."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


def handler(function: Handler[OperationsT, P, T]) -> Handler[OperationsT, P, T]:
    """Converts errors to FUSEErrors, since anything else would end the mount, and counts and times
    the requests."""
    operation = function.__name__

    @wraps(function)
    async def answered(self: OperationsT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        started = perf_counter()
        try:
            return await function(self, *args, **kwargs)
        except (StorageError, TreeError, OSError) as error:
            self.log_error(error)
            raise self.refusal(operation, error) from None
        except Exception as error:
            logger.exception("%s failed, which is a bug in kafkafs", operation)
            raise self.refusal(operation, error) from None
        finally:
            self.metrics.add(operation, perf_counter() - started)

    return answered


class Operations(pyfuse3.Operations):
    """Answers the kernel from a tree: the part that read-only and writable mounts share. Only the
    event loop uses it."""

    supports_dot_lookup = False
    #: Whether the owner may change directories.
    is_writable = False

    def __init__(self, tree: Tree, nursery: trio.Nursery) -> None:
        super().__init__()
        self._tree = tree
        self._nursery = nursery
        self._owner = Owner(self.is_writable)
        self._files: Table[Reader] = Table()
        self._directories: Table[Lister] = Table()
        self._listers: defaultdict[int, set[Lister]] = defaultdict(set)  # by inode
        self._recent = RecentRecords()
        self._disk_until = 0.0
        self._blocks = _blocks_read()
        self._logged_last = ""
        self._page_cache = PageCache()
        self._ahead_threads = AheadThreads()
        self._waiting = Waiting(nursery)
        self._ranges = Waiting(nursery, _MEASURING_THREADS)
        wait_ms = reader_config(tree.catalog.engine.configs).kafkafs_size_wait_ms
        self._measuring = Measuring(nursery, wait_ms / 1000)
        self._lookups = LastLookups()
        self._much = trio.CapacityLimiter(_MUCH_THREADS)
        self.watch = Watch(tree.catalog, self._open_nodes)
        self.metrics = tree.catalog.metrics
        self.metrics.open_files = self._files.__len__
        self.metrics.open_directories = self._directories.__len__

    def log_error(self, error: Exception) -> None:
        """Logs errors of the disk or the log directories, but not the same one twice in a row.
        Damage is logged where it is found; all other errors concern only the caller."""
        is_wrong = isinstance(error, OSError | LogDirError | PastEnd | Outgrown)
        if is_wrong and str(error) != self._logged_last:
            self._logged_last = str(error)
            logger.warning("%s", printable(str(error)))

    def refusal(self, operation: str, error: Exception) -> pyfuse3.FUSEError:
        """Counts an error and returns the reply to the kernel."""
        number = errno_of(error)
        self.metrics.errors[operation, number] += 1
        return pyfuse3.FUSEError(number)

    def _open_nodes(self) -> list[Node]:
        return [reader.node for reader in self._files.values()]

    def end(self) -> None:
        """Ends all waiting, because the mount ends."""
        self.watch.end()
        self._tree.catalog.previews.end()
        self._tree.catalog.ranges.end()
        if self._tree.catalog.changes is not None:
            self._tree.catalog.changes.end()

    # -- nodes ----------------------------------------------------------------------------------

    async def _run(self, may_block: bool, function: Callable[..., T], *args: Any) -> T:
        """Calls `function` in a thread if it may block, otherwise in the event loop."""
        started = perf_counter()
        if may_block or started < self._disk_until:
            return await trio.to_thread.run_sync(function, *args)
        try:
            return function(*args)
        finally:
            self._note_call(started)

    def _note_call(self, started: float) -> None:
        """Checks whether a call in the event loop waited for the disk."""
        ended = perf_counter()
        if ended - started > _LONG_SECONDS:
            before, self._blocks = self._blocks, _blocks_read()
            if self._blocks != before:
                self._disk_until = ended + _DISK_SECONDS

    async def _node(self, inode: int) -> Node:
        recent = self._recent.find(inode)
        if recent is not None:
            return recent
        return await self._run(self._tree.node_may_block(inode), self._tree.node, inode)

    async def _prepared(self, inode: int) -> Node:
        """Returns the node after its slow preparations have been done."""
        node = await self._node(inode)
        pending = node.pending()
        if pending is not None:
            await self._waiting.wait(pending)
        return node

    async def _measured(self, node: Node) -> None:
        """Waits until the slow preparations for a file's attributes have been attempted."""
        pending = node.pending() if isinstance(node, File) else None
        if pending is not None:
            await self._ranges.wait(pending)

    # -- names and attributes -------------------------------------------------------------------

    @handler
    async def lookup(
        self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        return await self.look_up(parent_inode, name, ctx.pid)

    async def look_up(
        self, parent_inode: int, name: bytes, pid: int = 0
    ) -> pyfuse3.EntryAttributes:
        """Looks a name up for thread `pid`."""
        if len(name) > _MAX_NAME:  # Linux passes names four times as long
            raise NameTooLong
        for lister in self._listers.get(parent_inode, ()):
            lister.was_looked_up = True
        last = self._lookups.find(pid, parent_inode, name)
        if last is not None:
            return self._owner.entry(last.attributes())
        offsets = self._tree.directory(parent_inode)
        if offsets is not None and name.isdigit():
            entry = self._record_entry(offsets, name)
            if entry is not None:
                return entry
        directory = offsets or await self._prepared(parent_inode)
        if not isinstance(directory, DirectoryNode):
            raise NoSuchName(os.fsdecode(name))
        text = os.fsdecode(name)
        if directory.reads_much and not directory.is_cached(text):
            node = await trio.to_thread.run_sync(directory.child, text, limiter=self._much)
        else:
            may_block = not directory.reads_much and directory.child_may_block(text)
            node = await self._run(may_block, directory.child, text)
        while not node.revalidate():
            node = await trio.to_thread.run_sync(directory.child, text)
        await self._measured(node)
        if not node.is_fixed:
            node = await trio.to_thread.run_sync(node.fixed)
        self._recent.note(node)
        if isinstance(node, MeasuredFile) and (size := node.stream_size) is not None:
            await self._measuring.find(size)
        if isinstance(node, FixedFile) and not (self.is_writable and node.shows_records):
            self._lookups.note(pid, parent_inode, name, node)
        return self._owner.entry(node.attributes())

    def _record_entry(self, offsets: DirectoryNode, name: bytes) -> pyfuse3.EntryAttributes | None:
        """Looks up a record's value, as nearly all lookups do, on the shortest path; returns None
        if the general path is needed or the disk may have to be read."""
        started = perf_counter()
        if started < self._disk_until:
            return None
        try:
            node = offsets.child(name.decode())
        finally:
            self._note_call(started)
        if not isinstance(node, ValueFile) or not node.revalidate():
            return None
        self._recent.note(node)
        return self._owner.record_entry(node)

    @handler
    async def getattr(self, inode: int, ctx: pyfuse3.RequestContext) -> pyfuse3.EntryAttributes:
        try:
            node = await self._node(inode)
        except Stale:
            node = self._open_node(inode)
        await self._measured(node)
        if isinstance(node, MeasuredFile) and (size := node.stream_size) is not None:
            await self._measuring.find(size)
        return self._owner.entry(node.attributes())

    def _open_node(self, inode: int) -> Node:
        """Returns a deleted node that is still open. Raises Stale if there is none."""
        node = next((node for node in self._open_nodes() if node.inode == inode), None)
        if node is None:
            raise Stale
        return node

    @handler
    async def readlink(self, inode: int, ctx: pyfuse3.RequestContext) -> bytes:
        node = await self._prepared(inode)
        if not isinstance(node, Link):
            raise Invalid("not a symbolic link")
        return os.fsencode(await trio.to_thread.run_sync(node.target))

    @handler
    async def getxattr(self, inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> bytes:
        text = os.fsdecode(name)
        if text.startswith(render.XATTR_PREFIX):  # ls and cp request foreign ones all the time
            value = (await self._xattrs(inode)).get(text)
            if value is not None:
                return value
        raise NoSuchAttribute

    @handler
    async def listxattr(self, inode: int, ctx: pyfuse3.RequestContext) -> Sequence[bytes]:
        return render.listed_xattrs(await self._xattrs(inode))

    async def _xattrs(self, inode: int) -> Mapping[str, bytes]:
        node = await self._node(inode)
        self._recent.note(node)
        return await self._run(node.xattrs_may_block, node.xattrs)

    @handler
    async def statfs(self, ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        answer = pyfuse3.StatvfsData()
        answer.f_bsize = answer.f_frsize = 4096
        answer.f_namemax = _MAX_NAME
        return answer

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        """Does nothing: inode numbers are computed, so there is nothing to forget."""

    # -- files ----------------------------------------------------------------------------------

    async def open_reading(self, inode: int, flags: int, pid: int) -> pyfuse3.FileInfo:
        self._lookups.forget(pid)
        node = await self._node(inode)
        if not isinstance(node, File):
            raise IsADirectory
        await self._measured(node)
        if isinstance(node, RecordFile) and node.is_at_hand:
            self._recent.note(node)
            self._page_cache.store(node)
            return pyfuse3.FileInfo(fh=self._files.add(Reader(node, node.open())))
        held: object = None
        if isinstance(node, MeasuredFile):
            # This must come first: a cleaner may replace segments while the size is being found.
            held = await trio.to_thread.run_sync(node.hold)
            await self._search(node)
            if (size := node.stream_size) is not None:
                await self._measuring.find(size, opens=True)
        waits = not flags & os.O_NONBLOCK
        may_block = not isinstance(node, RecordFile)
        handle = await self._run(may_block, lambda: node.open(waits=waits))
        del held
        return pyfuse3.FileInfo(
            fh=pyfuse3.FileHandleT(self._files.add(self._reader(node, handle))),
            direct_io=handle.direct_io,
            keep_cache=handle.keep_cache,
            nonseekable=not handle.seekable,
        )

    async def _search(self, node: MeasuredFile) -> None:
        """Finds what a file's size depends on, if that does not take long."""
        pending = node.search()
        if pending is None:
            return
        with trio.move_on_after(self._measuring.most_seconds):
            await self._waiting.wait(pending)
            await trio.to_thread.run_sync(node.found)

    def _reader(self, node: Node, handle: Handle) -> Reader:
        if isinstance(handle, PreparedStreamHandle):
            return PreparedStreamReader(
                node, handle, self._nursery, self._ahead_threads, self._measuring, self._waiting
            )
        if isinstance(handle, StreamHandle):
            threads, measuring = self._ahead_threads, self._measuring
            return StreamReader(node, handle, self._nursery, threads, measuring)
        if isinstance(handle, FollowHandle):
            return FollowReader(node, handle, self._nursery, self.watch)
        return Reader(node, handle)

    @handler
    async def read(self, fh: int, off: int, size: int) -> bytes:
        # pyfuse3 accepts any buffer, although its types say bytes.
        data = cast(bytes, await self._files[fh].read(off, size))
        self.metrics.bytes_read += len(data)
        return data

    @handler
    async def release(self, fh: int) -> None:
        reader = self._files.remove(fh)
        self._page_cache.note_closed(reader.node)
        await reader.close()

    @handler
    async def poll(
        self,
        inode: int,
        fh: int,
        poll_handle: pyfuse3.PollHandle | None,
        ctx: pyfuse3.RequestContext,
    ) -> int:
        return await self._files[fh].poll(poll_handle)

    # -- directories ----------------------------------------------------------------------------

    @handler
    async def opendir(self, inode: int, ctx: pyfuse3.RequestContext) -> int:
        node = await self._prepared(inode)
        if not isinstance(node, DirectoryNode):
            raise NotADirectory
        limiter = self._much if node.reads_much else None
        lister = Lister(node, self._owner, self._nursery, limiter)
        self._listers[node.inode].add(lister)
        return self._directories.add(lister)

    @handler
    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        await self._directories[fh].reply(start_id, token)

    @handler
    async def releasedir(self, fh: int) -> None:
        lister = self._directories.remove(fh)
        listers = self._listers[lister.directory.inode]
        listers.discard(lister)
        if not listers:
            del self._listers[lister.directory.inode]
        lister.close()


class ReadOnlyOperations(Operations):
    """The handlers of a read-only mount. The kernel itself rejects changes unless the mount is
    remounted with `rw`."""

    @handler
    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise ReadOnly
        return await self.open_reading(inode, flags, ctx.pid)

    async def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise pyfuse3.FUSEError(errno.EROFS)

    create = mkdir = mknod = symlink = link = rename = unlink = rmdir = _refuse
    setattr = setxattr = removexattr = write = _refuse
