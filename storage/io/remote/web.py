"""Reads files of a web server, with fsspec's HTTPFileSystem.

Its pages list names only, so that each file is asked for its size, time and ETag. A server that
ignores ranges sends whole files, of which small ones are read nevertheless.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final

from .source import SnapshotNode

SCHEMES: Final = ("http", "https")
#: Files that are read from a server that sends only whole ones are not larger.
_LARGEST_WHOLE: Final = 32 << 20
#: Files that are asked for at a time.
_AT_ONCE: Final = 16


async def described(filesystem: Any, urls: Sequence[str]) -> list[Mapping[str, Any]]:
    """Returns what the server says about files, in their order."""
    from fsspec.asyn import _run_coros_in_chunks

    requests = [filesystem._info(url) for url in urls]
    return list(await _run_coros_in_chunks(requests, batch_size=_AT_ONCE))


async def read(filesystem: Any, url: str, node: SnapshotNode, start: int, end: int) -> bytes:
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
