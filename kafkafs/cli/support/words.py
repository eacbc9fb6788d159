"""What words of a command line stand for, wherever they are used."""

from __future__ import annotations

#: A name and its value: an override of a broker or topic config.
Config = tuple[str, str]


def plain_path(path: str) -> str:
    """Returns `path` without redundant slashes and dots."""
    return "/".join(part for part in path.split("/") if part not in ("", "."))
