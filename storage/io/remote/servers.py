"""Reads files of web servers, with fsspec's HTTPFileSystem, and over SFTP, with paramiko.

A web server's pages list names only, so that each file is asked for its size, time and ETag. One
that ignores ranges sends whole files, of which small ones are read nevertheless.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Final

from .source import SnapshotNode

WEB: Final = ("http", "https")
#: Files that are read from a server that sends only whole ones are not larger.
_LARGEST_WHOLE: Final = 32 << 20
#: Files that are asked for at a time.
_AT_ONCE: Final = 16
#: Where ssh keeps the keys of hosts for all users.
_HOSTS_OF_ALL: Final = "/etc/ssh/ssh_known_hosts"


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
