"""The limit of open files."""

from __future__ import annotations

from contextlib import suppress


def raise_file_limit() -> None:
    """Raises the limit of open files to the hard limit: reading a partition keeps all its segments
    open."""
    try:
        import resource
    except ModuleNotFoundError:  # on Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
