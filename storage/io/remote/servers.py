"""Lists and reads what servers have that are no object stores: web servers, through fsspec's
HTTPFileSystem, SFTP, through paramiko, and HDFS.

They list one directory at a time. fsspec's own walk leaves out each that cannot be listed, as if it
were empty, so it is not used. A web server's pages list names only, so that each file is asked for
its size, time and ETag. One that ignores ranges sends whole files, of which small ones are read
nevertheless.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final

from ...errors import LogDirError, SegmentGone
from .requests import translated
from .source import MAX_NAMES, SnapshotNode

WEB: Final = ("http", "https")
#: What lists one directory at a time.
SERVERS: Final = (*WEB, "sftp", "hdfs")
#: Directories below one another: a server may have no end of them.
_MOST_LEVELS: Final = 64
#: Files that are read from a server that sends only whole ones are not larger.
_LARGEST_WHOLE: Final = 32 << 20
#: Files or directories that are asked for at a time.
_AT_ONCE: Final = 16
#: Where ssh keeps the keys of hosts for all users.
_HOSTS_OF_ALL: Final = "/etc/ssh/ssh_known_hosts"


#: What a library says about a file or directory.
Info = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Below:
    """What is below a directory: its `files` by path, and why some directories cannot be listed,
    by theirs."""

    files: dict[str, Info] = field(default_factory=dict)
    forbidden: dict[str, str] = field(default_factory=dict)


#: What a directory contains, or why it cannot be listed.
Answer = Sequence[Info] | Exception


def walk(root: str, list_all: Callable[[Sequence[str]], Sequence[Answer]]) -> Below:
    """Lists everything below a directory with `list_all`, which lists several. Raises the exception
    of `root`, and those of others unless they are gone or forbidden; LogDirError if there is too
    much."""
    found = Below()
    level, count = [root], 0
    for _ in range(_MOST_LEVELS):
        below: list[str] = []
        for path, entries in zip(level, list_all(level), strict=True):
            if isinstance(entries, Exception):
                _note_failure(found, path, entries, is_root=path == root)
                continue
            for info in entries:
                name = str(info["name"])
                if info.get("type") != "directory":
                    found.files[name] = info
                elif _is_inside(name, path):
                    below.append(name)
            count += len(entries)
        if count > MAX_NAMES:
            raise LogDirError(root, f"has more than {MAX_NAMES} names; name a directory in it")
        if not below:
            return found
        level = below
    raise LogDirError(root, f"has directories more than {_MOST_LEVELS} deep")


def _is_inside(name: str, path: str) -> bool:
    """Returns whether a directory is in another one: a page may link to itself and to others."""
    above, _, last = name.rstrip("/").rpartition("/")
    return above == path.rstrip("/") and last not in (".", "..")


def _note_failure(found: Below, path: str, error: Exception, *, is_root: bool) -> None:
    """Notes that a directory cannot be listed, or raises the reason."""
    reason = translated(error, path)
    if is_root or not isinstance(reason, (SegmentGone, PermissionError)):
        raise translated(error, path) from error
    if isinstance(reason, PermissionError):
        found.forbidden[path] = reason.strerror or str(reason)


async def list_at_once(filesystem: Any, paths: Sequence[str]) -> Sequence[Answer]:
    """Lists several directories, for `walk`."""
    from fsspec.asyn import _run_coros_in_chunks

    requests = [filesystem._ls(path, detail=True) for path in paths]
    answers = await _run_coros_in_chunks(requests, batch_size=_AT_ONCE, return_exceptions=True)
    return list(answers)


def list_in_turn(filesystem: Any, paths: Sequence[str]) -> Sequence[Answer]:
    """Lists several directories over one connection, for `walk`. Raises what may be wrong with the
    connection."""
    found: list[Answer] = []
    for path in paths:
        try:
            found.append(filesystem.ls(path, detail=True))
        except (FileNotFoundError, PermissionError) as error:
            found.append(error)
    return found


async def web_files(filesystem: Any, urls: Sequence[str]) -> list[Mapping[str, Any]]:
    """Returns what the server says about files, in their order."""
    from fsspec.asyn import _run_coros_in_chunks

    requests = [filesystem._info(url) for url in urls]
    return list(await _run_coros_in_chunks(requests, batch_size=_AT_ONCE))


async def read_web(filesystem: Any, url: str, node: SnapshotNode, start: int, end: int) -> bytes:
    """Returns bytes of a file. Raises FileNotFoundError if it changed since it was listed, OSError
    if only all of it could be read, which is too much, and what aiohttp raises."""
    headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
    if node.version.startswith('"'):  # a weak one never matches
        headers["If-Match"] = node.version
    session = await filesystem.set_session()
    async with session.get(filesystem.encode_url(url), headers=headers) as response:
        filesystem._raise_not_found_for_status(response, url)
        is_part = response.status == 206
        if _state(response.headers, is_part) != (node.version, node.status.st_mtime_ns, node.size):
            raise FileNotFoundError(errno.ENOENT, "changed", url)
        if not is_part and node.size > _LARGEST_WHOLE:
            why = "the server sends only whole files, and this one is too large for that"
            raise OSError(errno.EOPNOTSUPP, why, url)
        data = bytes(await response.read())
    return data if is_part else data[start:end]


def _state(headers: Mapping[str, str], is_part: bool) -> tuple[str, int, int]:
    """Returns ETag, time (ns) and size of the file that an answer is from."""
    size = headers.get("Content-Range", "").rpartition("/")[2]
    if not is_part:
        size = headers.get("Content-Length", "")
    return headers.get("ETag", ""), time_of(headers.get("Last-Modified")), _number(size)


def time_of(date: object) -> int:
    """Returns a date as in a header of HTTP in ns since 1970, 0 if it is none."""
    try:
        return max(int(parsedate_to_datetime(str(date)).timestamp()), 0) * 1_000_000_000
    except (ValueError, OverflowError):
        return 0


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else -1


class UnknownHost(Exception):
    """A host has a key that ssh does not know."""


def host_key_policy() -> Any:
    """Returns what paramiko is to do with the key of a host: to accept it if ssh knows it. Raises
    ImportError if there is no paramiko."""
    import paramiko

    methods = {"missing_host_key": _check_host_key}
    return type("KnownHosts", (paramiko.MissingHostKeyPolicy,), methods)()


def _check_host_key(_policy: object, client: Any, hostname: str, key: Any) -> None:
    """Raises UnknownHost if ssh does not know the key of a host."""
    with suppress(OSError):
        client.load_system_host_keys(_HOSTS_OF_ALL)
    client.load_system_host_keys()  # those of the user
    if client._system_host_keys.check(hostname, key):
        return
    why = f"{hostname} has a key that is not in ~/.ssh/known_hosts; connect with ssh once"
    raise UnknownHost(why)


def read_sftp(filesystem: Any, path: str, node: SnapshotNode, start: int, end: int) -> bytes:
    """Returns bytes of a file. Raises FileNotFoundError if it changed since it was listed, and what
    paramiko raises. One thread at a time may use a connection."""
    with filesystem.ftp.open(path, "rb") as file:
        status = file.stat()
        if (status.st_size, int(status.st_mtime) * 1_000_000_000) != (
            node.size,
            node.status.st_mtime_ns,
        ):
            raise FileNotFoundError(errno.ENOENT, "changed", path)
        # All requests are sent before the first answer is awaited: each is of 32 KiB.
        return b"".join(file.readv([(start, end - start)]))
