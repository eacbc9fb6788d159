"""HDFS as a file system of fsspec, through hdfs-native, which needs neither Java nor libhdfs.

The file system that hdfs-native brings waits for a silent server for ever. What is awaited here can
be given up.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from fsspec.asyn import AsyncFileSystem
from hdfs_native import AsyncClient

# The error of a name node: its Java class, and its message, which a stack trace follows.
_REMOTE: Final = re.compile(r'RPCError\("([\w.$]+)", "(.*?)(?:\\n|"\)$)', re.DOTALL)
_FORBIDDEN: Final = "AccessControlException"
# Attempts for all name nodes of a cluster together, and pauses between; a request is repeated.
_ATTEMPTS: Final = {
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "1000",
}


class Hdfs(AsyncFileSystem):  # type: ignore[misc] # fsspec has no types
    """What log directories need of a cluster, read-only. Its configuration is that of Hadoop, in
    HADOOP_CONF_DIR; so is authentication."""

    protocol = "hdfs"

    def __init__(self, cluster: str, timeout_ms: int, **options: Any) -> None:
        """`cluster`: a name node or name service; "" for the default one of the configuration."""
        super().__init__(**options)
        settings = {**_ATTEMPTS, "dfs.client.socket-timeout": str(timeout_ms)}
        self._client = AsyncClient(f"hdfs://{cluster}" if cluster else None, settings)

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        with _translating():
            return _described(await self._client.get_file_info(path))

    async def _ls(self, path: str, **_: Any) -> list[Mapping[str, Any]]:
        """Returns what is known of each file and directory in a directory."""
        with _translating():
            return [_described(status) async for status in self._client.list_status(path)]

    async def _cat_file(self, path: str, start: int, end: int, **_: Any) -> bytes:
        with _translating():
            file = await self._client.read(path)
            size = min(end, len(file)) - start
            return bytes(await file.read_range(start, size)) if size > 0 else b""


def _described(status: Any) -> dict[str, Any]:
    return {
        "name": status.path,
        "size": status.length,
        "type": "directory" if status.isdir else "file",
        "mtime": status.modification_time / 1000,
    }


@contextmanager
def _translating() -> Iterator[None]:
    """Makes an error of hdfs-native one with a number and the first line of its text."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (RuntimeError, OSError) as error:
        text = str(error)
        found = _REMOTE.match(text)
        kind, what = (found[1].rpartition(".")[2], found[2]) if found else ("", text)
        if kind == _FORBIDDEN:
            raise PermissionError(errno.EACCES, what) from None
        line = next(iter(what.splitlines()), "")
        raise OSError(errno.EIO, f"{kind}: {line}" if kind else line) from None
