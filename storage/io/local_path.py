"""Converts paths given by users, which may be `file:` URLs, to local paths."""

from __future__ import annotations

import re
from typing import Final

from ..errors import LogDirError

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
    if scheme.lower() != "file":
        why = f"a URL of the scheme {scheme}, and only local paths are supported"
        raise LogDirError(text, f"{why}; put ./ in front if it is one")
    if len(slashes) == 2:
        host, _, rest = rest.partition("/")
        if host != "localhost":
            raise LogDirError(text, f"a file on the host {host!r}; write file:///path for one here")
    return f"/{rest}"
