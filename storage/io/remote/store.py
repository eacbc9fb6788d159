"""Directories of object stores and servers, through fsspec."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from ...errors import LogDirError, SegmentGone
from ...wording import printable
from ..directory import FileType
from ..local_path import SCHEMES
from . import servers
from .block_source import BlockSource
from .requests import ShortRead, request
from .s3 import S3Reader
from .settings import RemoteSettings
from .source import Listed, Snapshot, SnapshotNode

INSTALL: Final = "pip install 'kafkafs[remote]'"
_INSTALL_HDFS: Final = "pip install 'kafkafs[remote,hdfs]'"
_VERSIONS: Final = ("ETag", "etag", "generation", "md5Hash", "content_md5")
_TIMES: Final = ("LastModified", "last_modified", "mtime", "updated", "created")
# Of the libraries that log warnings.
_LOGGERS: Final = ("azure", "fsspec", "gcsfs", "paramiko")
_UNPRINTED: Final = logging.NullHandler()
# Listing takes many requests, one after the other, of which the library tells nothing.
_LIST_TIMEOUTS: Final = 20


class ObjectStore(BlockSource):
    """A URL, whose objects are files by the slashes in their keys."""

    def __init__(self, location: str, settings: RemoteSettings) -> None:
        super().__init__(settings)
        self.location = location
        self._scheme = location.partition("://")[0]
        self._filesystem: tuple[int, Any, str] | None = None  # process, file system, its root
        self._reader: tuple[Any, S3Reader] | None = None  # of this file system
        self._opening = threading.Lock()  # held while making the reader
        self._using = threading.Lock()  # held while using a connection that cannot be shared
        self._listing = threading.Lock()  # held while listing
        self._known: tuple[float, Snapshot] | None = None

    def snapshot(self) -> Snapshot:
        known = self._known
        if known is not None and time.monotonic() - known[0] < self.settings.list_ms / 1000:
            return known[1]
        with self._listing:
            if self._known is not known and self._known is not None:
                return self._known[1]  # another thread has listed it meanwhile
            snapshot = Snapshot(self.location, request("list", self.location, self._list))
            if not snapshot.root.children and not snapshot.problems:
                raise SegmentGone(self.location)
            self._known = (time.monotonic(), snapshot)
            return snapshot

    def invalidate(self) -> None:
        """Lists again at the next use, because an object was not what it had been."""
        self._known = None

    def object_here(self) -> SnapshotNode | None:
        """Returns the object at the location itself, None if there is none."""
        filesystem, root = self._opened()
        try:
            info = request("stat", self.location, lambda: self._call(filesystem, "info", root))
        except SegmentGone:
            return None
        if info.get("type") == "directory":
            return None
        return Snapshot(self.location, [listed("object", info)]).root.get(["object"])

    def fetch(self, path: str, node: SnapshotNode, position: int, size: int) -> bytes:
        def send() -> bytes:
            data = self._range(str(node.handle), node, position, position + size)
            if len(data) != size:
                raise ShortRead(f"the server sent {len(data)} of {size} bytes")
            return data

        try:
            return request("read", path, send)
        except SegmentGone:
            self.invalidate()
            raise

    def _range(self, key: str, node: SnapshotNode, start: int, end: int) -> bytes:
        """Returns bytes of an object. Raises FileNotFoundError if it has another version."""
        filesystem, _ = self._opened()
        if self._scheme == "s3" and node.version:
            return self._s3_reader().read(key, node.version, start, end)
        if self._scheme in servers.WEB:
            return bytes(self._run(filesystem, servers.read_web, filesystem, key, node, start, end))
        if self._scheme == "sftp":
            with self._one_at_a_time():
                return servers.read_sftp(filesystem, key, node, start, end)
        data = bytes(self._call(filesystem, "cat_file", key, start=start, end=end))
        # The others cannot be asked for one version, but tell which one there is.
        now = listed("", self._call(filesystem, "info", key))
        if (now.version, now.size, max(now.mtime_ns, 0)) != (
            node.version,
            node.size,
            node.status.st_mtime_ns,
        ):
            raise FileNotFoundError(errno.ENOENT, "changed", key)
        return data

    def _list(self) -> list[Listed]:
        filesystem, root = self._opened()
        if self._scheme in servers.SERVERS:
            found = self._walked(filesystem, root)
        else:
            files = self._call(filesystem, "find", root, detail=True, _timeouts=_LIST_TIMEOUTS)
            found = servers.Below(files)
        return list(self._entries(root, found))

    def _entries(self, root: str, found: servers.Below) -> Iterator[Listed]:
        above = root.rstrip("/") + "/"
        for key, info in found.files.items():
            if key.rstrip("/") == root.rstrip("/") and info.get("type") != "directory":
                if info.get("size"):
                    raise LogDirError(self.location, "an object, not a directory")
                continue
            yield listed(key.removeprefix(above), {**info, "name": key})
        for key, why in found.forbidden.items():
            yield Listed(key.removeprefix(above), FileType.DIRECTORY, 0, 0, "", None, why)

    def _walked(self, filesystem: Any, root: str) -> servers.Below:
        """Returns what a server that lists one directory at a time has."""
        if self._scheme == "sftp" and self._call(filesystem, "info", root)["type"] == "file":
            raise LogDirError(self.location, "a file, not a directory")
        found = servers.walk(root, lambda paths: self._listings(filesystem, paths))
        if self._scheme not in servers.WEB:
            return found
        # A link with a query is one to the same page, in another order. A file has no links.
        links = [key for key in found.files if not key.endswith("/") and "?" not in key]
        links = links if found.files or found.forbidden else [root]
        infos = self._run(filesystem, servers.web_files, filesystem, links, _t=_LIST_TIMEOUTS)
        return servers.Below(dict(zip(links, infos, strict=True)), found.forbidden)

    def _listings(self, filesystem: Any, paths: Sequence[str]) -> Sequence[servers.Answer]:
        if self._scheme == "sftp":
            with self._one_at_a_time():
                return servers.list_in_turn(filesystem, paths)
        listing = servers.list_at_once
        answers: Sequence[servers.Answer]
        answers = self._run(filesystem, listing, filesystem, paths, _t=_LIST_TIMEOUTS)
        return answers

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """For a connection that only one thread may use, and which is made anew after an error that
        may be one of the connection."""
        with self._using:
            try:
                yield
            except (FileNotFoundError, PermissionError):
                raise
            except Exception:
                self._filesystem = None
                raise

    def _opened(self) -> tuple[Any, str]:
        """Returns the file system of this process, and the root as its path."""
        known = self._filesystem
        if known is None or known[0] != os.getpid():
            known = self._filesystem = (os.getpid(), *self._open())
        return known[1], known[2]

    def _s3_reader(self) -> S3Reader:
        """Returns the reader of this process."""
        filesystem, _ = self._opened()
        with self._opening:
            if self._reader is None or self._reader[0] is not filesystem:
                self._reader = filesystem, S3Reader(filesystem)
            return self._reader[1]

    def _open(self) -> tuple[Any, str]:
        for name in _LOGGERS:  # or Python prints what a library logs before it raises
            logging.getLogger(name).addHandler(_UNPRINTED)
        try:
            from fsspec.core import url_to_fs

            if self._scheme == "hdfs":
                return self._open_hdfs()
            filesystem, root = url_to_fs(self.location, **self._options())
        except ImportError:
            needed = " and ".join(dict.fromkeys(("fsspec", SCHEMES[self._scheme])))
            install = _INSTALL_HDFS if self._scheme == "hdfs" else INSTALL
            why = f"reading {self._scheme}:// needs {needed}: {install}"
            raise LogDirError(self.location, why) from None
        except Exception as error:  # noqa: BLE001 - of each library its own
            # Of SSH it says what is missing, and nothing secret.
            is_ssh = type(error).__module__.startswith(("paramiko", servers.__name__))
            text = getattr(error, "strerror", None) or str(error)
            why = text if is_ssh else type(error).__name__
            raise LogDirError(self.location, f"cannot be opened ({printable(why)})") from None
        if self._scheme == "s3":
            filesystem.retries = 1
        return filesystem, root

    def _open_hdfs(self) -> tuple[Any, str]:
        from .hdfs import Hdfs

        cluster, _, path = self.location.removeprefix("hdfs://").partition("/")
        timeout_ms = self.settings.timeout_ms
        return Hdfs(cluster, timeout_ms, skip_instance_cache=True), f"/{path}"

    def _options(self) -> dict[str, Any]:
        """Returns what the library is to do differently: it repeats nothing, and caches nothing."""
        seconds = self.settings.timeout_ms / 1000
        options: dict[str, Any] = {"skip_instance_cache": True}
        if self._scheme == "sftp":  # all of them are paramiko's
            waits = dict.fromkeys(("timeout", "banner_timeout", "auth_timeout"), seconds)
            return {**options, **waits, "host_key_policy": servers.host_key_policy()}
        options["use_listings_cache"] = False
        if self._scheme == "s3":
            options["config_kwargs"] = {
                "connect_timeout": seconds,
                "read_timeout": seconds,
                "retries": {"total_max_attempts": 1},
                "max_pool_connections": 32,
            }
        return options

    def _call(self, filesystem: Any, name: str, *args: Any, _timeouts: int = 1, **how: Any) -> Any:
        if self._scheme == "sftp":
            with self._one_at_a_time():
                return getattr(filesystem, name)(*args, **how)
        if not filesystem.async_impl:
            return getattr(filesystem, name)(*args, **how)
        return self._run(filesystem, getattr(filesystem, f"_{name}"), *args, _t=_timeouts, **how)

    def _run(
        self, filesystem: Any, send: Callable[..., Any], *args: Any, _t: int = 1, **how: Any
    ) -> Any:
        from fsspec.asyn import sync

        seconds = self.settings.timeout_ms / 1000 * _t
        return sync(filesystem.loop, send, *args, timeout=seconds, **how)


def listed(path: str, info: Mapping[str, Any]) -> Listed:
    """Returns an object as a library describes it."""
    kind = FileType.DIRECTORY if info.get("type") == "directory" else FileType.FILE
    if info.get("islink") or info.get("type") == "link":
        kind = FileType.SYMLINK
    version = next((str(info[name]) for name in _VERSIONS if info.get(name)), "")
    when = next((info[name] for name in _TIMES if info.get(name)), None)
    mtime_ns = _nanoseconds(when) or servers.time_of(info.get("Last-Modified"))
    return Listed(path, kind, info.get("size"), mtime_ns, version, info.get("name"))


def _nanoseconds(when: object) -> int:
    """Returns a time in ns since 1970, 0 if it is none."""
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when)
        except ValueError:
            return 0
    if isinstance(when, datetime):
        when = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    if isinstance(when, (int, float)) and abs(when) < 1 << 33:
        return round(when * 1_000_000) * 1000
    return 0
