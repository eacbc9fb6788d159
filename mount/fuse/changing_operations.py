"""The FUSE handlers of a writable mount: those of `operations.py` plus the ones that modify.

Each handler finds the node, calls it and replies. The nodes decide what may be changed and how.
Nearly all of these calls may block on the disk, so they run in threads.
"""

from __future__ import annotations

import errno
import logging
import os
from typing import Any, Final, NoReturn

import pyfuse3
import trio

from kafkafs.storage import ConfigError, OffsetNotFound, Refused, TopicExists, printable

from ..node import AttributeChanges, DirectoryNode, File
from ..vfs.errnos import (
    Busy,
    Exists,
    Invalid,
    IsADirectory,
    NoSuchName,
    NotADirectory,
    NotEmpty,
    NotPermitted,
    TooLarge,
)
from .operations import Operations, handler
from .writers import Writer

logger = logging.getLogger(__name__)

# Errors whose reason is logged, because an errno does not explain them.
_REASONED: Final = (
    *(NotPermitted, Busy, NotEmpty, Exists, Invalid, TooLarge),
    *(Refused, ConfigError, TopicExists),
)


class ChangingOperations(Operations):
    """Answers the kernel from a writable tree. Only the event loop uses it."""

    is_writable = True

    def log_error(self, error: Exception) -> None:
        """Also logs why a request was refused: an errno cannot carry the reason."""
        super().log_error(error)
        reason = printable(str(error))
        if isinstance(error, _REASONED) and reason and reason != self._logged_last:
            self._logged_last = reason
            logger.info("refused: %s", reason)

    # -- files ----------------------------------------------------------------------------------

    @handler
    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        if flags & os.O_ACCMODE == os.O_RDONLY and not flags & os.O_TRUNC:
            return await self.open_reading(inode, flags, ctx.pid)
        node = await self._node(inode)
        if not isinstance(node, File):
            raise IsADirectory
        handle = await self._run(node.open_may_block(flags), node.open_writing, flags)
        return self._opened(Writer(node, handle))

    @handler
    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: pyfuse3.RequestContext
    ) -> tuple[pyfuse3.FileInfo, pyfuse3.EntryAttributes]:
        directory = await self._directory(parent_inode)
        created = await trio.to_thread.run_sync(directory.create, os.fsdecode(name), flags)
        node, handle = created
        node.take_mode(mode)
        attributes = await trio.to_thread.run_sync(node.attributes)
        return self._opened(Writer(node, handle)), self._owner.entry(attributes)

    def _opened(self, writer: Writer) -> pyfuse3.FileInfo:
        handle = writer.handle
        return pyfuse3.FileInfo(
            fh=pyfuse3.FileHandleT(self._files.add(writer)),
            direct_io=handle.direct_io,
            keep_cache=handle.keep_cache,
            nonseekable=not handle.seekable,
        )

    def _writer(self, fh: int) -> Writer:
        writer = self._files[fh]
        if not isinstance(writer, Writer):
            raise Invalid("the file is not open for writing")
        return writer

    @handler
    async def write(self, fh: int, off: int, buf: bytes) -> int:
        written = await self._writer(fh).write(off, buf, is_alone=len(self._files) == 1)
        self.metrics.bytes_written += written
        return written

    @handler
    async def flush(self, fh: int) -> None:
        reader = self._files[fh]
        if isinstance(reader, Writer):
            await reader.flush()

    @handler
    async def fsync(self, fh: int, datasync: bool) -> None:
        reader = self._files[fh]
        if isinstance(reader, Writer):
            await reader.sync()
        else:
            await trio.to_thread.run_sync(reader.node.sync)

    @handler
    async def setattr(
        self,
        inode: int,
        attr: pyfuse3.EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: int | None,
        ctx: pyfuse3.RequestContext,
    ) -> pyfuse3.EntryAttributes:
        node = await self._node(inode)
        if fields.update_size:
            if fh is not None:
                await self._writer(fh).truncate(attr.st_size)
            elif isinstance(node, File):
                await trio.to_thread.run_sync(node.truncate, attr.st_size)
        changes = AttributeChanges(
            mode=attr.st_mode if fields.update_mode else None,
            uid=attr.st_uid if fields.update_uid else None,
            gid=attr.st_gid if fields.update_gid else None,
            mtime_ns=attr.st_mtime_ns if fields.update_mtime else None,
        )
        if changes != AttributeChanges():
            await trio.to_thread.run_sync(node.change_attributes, changes)
        return self._owner.entry((await self._node(inode)).attributes())

    # -- names ----------------------------------------------------------------------------------

    @handler
    async def lookup(
        self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        try:
            return await self.look_up(parent_inode, name, ctx.pid)
        except (NoSuchName, OffsetNotFound):
            directory = await self._directory(parent_inode)
            removed = directory.removed(os.fsdecode(name), ctx.pid)
            if removed is None:
                raise
            return self._owner.entry(removed.attributes())

    async def _directory(self, inode: int) -> DirectoryNode:
        node = self._tree.directory(inode) or await self._node(inode)
        if not isinstance(node, DirectoryNode):
            raise NotADirectory
        return node

    @handler
    async def unlink(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        directory = await self._directory(parent_inode)
        text = os.fsdecode(name)
        await self._run(directory.remove_may_block(text), directory.remove, text, ctx.pid)

    @handler
    async def rmdir(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        directory = await self._directory(parent_inode)
        await trio.to_thread.run_sync(directory.remove_directory, os.fsdecode(name))

    @handler
    async def mkdir(
        self, parent_inode: int, name: bytes, mode: int, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        directory = await self._directory(parent_inode)
        made = await trio.to_thread.run_sync(directory.make_directory, os.fsdecode(name))
        return self._owner.entry(await trio.to_thread.run_sync(made.attributes))

    @handler
    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: pyfuse3.RequestContext,
    ) -> None:
        source = await self._directory(parent_inode_old)
        target = await self._directory(parent_inode_new)
        old, new = os.fsdecode(name_old), os.fsdecode(name_new)
        await trio.to_thread.run_sync(source.rename, old, target, new, flags)

    @handler
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        await trio.to_thread.run_sync(self._directories[fh].directory.sync)

    @handler
    async def _forbid(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotPermitted("neither links nor devices can be created here")

    mknod = symlink = link = _forbid

    async def _unsupported(self, *args: object, **kwargs: object) -> NoReturn:
        """Replies as a file system without settable extended attributes does."""
        raise pyfuse3.FUSEError(errno.ENOTSUP)

    setxattr = removexattr = _unsupported
