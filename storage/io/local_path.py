"""What a path that a user gives means: a local path, or a URL of an object store or a server."""

from __future__ import annotations

import os
import re
from typing import Final

from ..errors import LogDirError

#: Schemes that log directories can be read from, and the distribution that fsspec needs for each.
SCHEMES: Final = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "abfs": "adlfs",
    "https": "aiohttp",
    "http": "aiohttp",
    "sftp": "paramiko",
    "hdfs": "hdfs-native",
    "memory": "fsspec",
}
#: Suffixes of archives, which are read like directories.
ARCHIVES: Final = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip")

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/+)(.*)", re.DOTALL)


def local_path(text: str) -> str:
    """Returns the path that `text` names: `file:///data` is /data, and a plain path is itself.

    Raises LogDirError for any other URL. As a path it would name a directory such as `s3a:` in the
    working directory, which `./s3a:/x` still names.
    """
    match = _URL.fullmatch(text)
    if match is None:
        return text
    scheme, slashes, rest = match.groups()
    if scheme.lower() in SCHEMES:
        why = "a URL, which can only be read; give a local path"
        raise LogDirError(_without_secrets(text), why)
    if scheme.lower() != "file":
        why = f"a URL of the scheme {scheme}, and only {', '.join(SCHEMES)} can be read"
        raise LogDirError(_without_secrets(text), f"{why}; put ./ in front if it is a local path")
    if len(slashes) == 2:
        host, _, rest = rest.partition("/")
        if host != "localhost":
            raise LogDirError(text, f"a file on the host {host!r}; write file:///path for one here")
    return f"/{rest}"


def location(text: str) -> str:
    """Returns what `text` names to read: a local path, as `local_path`, or a URL of SCHEMES, in
    one spelling. Raises LogDirError for a URL of another scheme, and for one with a password or a
    query, which would show in messages: credentials come from the mechanisms of each service."""
    if not is_url(text):
        return local_path(text)
    scheme, rest = text.split(":", 1)
    host, _, path = rest.lstrip("/").partition("/")
    if ":" in host.rpartition("@")[0] or "?" in path or "#" in path:
        why = "a URL with a password or a query; credentials come from the environment or"
        raise LogDirError(_without_secrets(text), f"{why} the configuration of the service's tools")
    parts = [part for part in path.split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise LogDirError(text, "a URL with . or ..; give the names that they stand for")
    return f"{scheme.lower()}://{'/'.join([host, *parts])}"


def is_url(text: str) -> bool:
    """Returns whether `text` is a URL of one of SCHEMES."""
    match = _URL.fullmatch(text)
    return match is not None and match.group(1).lower() in SCHEMES


def absolute_path(path: str) -> str:
    """Returns a path as a process with another working directory needs it; a URL is itself."""
    return path if is_url(path) else os.path.abspath(path)


def _without_secrets(url: str) -> str:
    """Returns a URL for a message, without user, password and query."""
    plain = re.sub(r"[?#].*", "", url, flags=re.DOTALL)
    return re.sub(r"(:/+)[^/]*@", r"\1", plain)


def split_archive(path: str) -> tuple[str, str] | None:
    """Returns a path as that of an archive, by the suffix of one of its names, and the path within
    it; None if no name has such a suffix. The outermost archive counts."""
    start = path.find("://") + 3 if is_url(path) else 0
    position = start
    for part in path[start:].split("/"):
        position += len(part)
        if part.lower().endswith(ARCHIVES):
            return path[:position], path[position:].strip("/")
        position += 1
    return None
