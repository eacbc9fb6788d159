"""Types of parameters that are paths, some of which may be URLs."""

from __future__ import annotations

from typing import Any

import click


class LocalPath(click.Path):
    """A path. `file:///data` means /data; any other URL is a usage error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(local_path(value, param, ctx), param, ctx)


class ReadablePath(click.Path):
    """A path that is only read: also a URL, or a path in an archive."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(readable_path(value, param, ctx), param, ctx)


class LocalFile(click.File):
    """An open file, whose path is parsed as by `LocalPath`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        is_open = not isinstance(value, str)
        path = value if is_open else local_path(value, param, ctx)
        return super().convert(path, param, ctx)


def local_path(value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
    """Calls `storage.local_path` and turns its LogDirError into a usage error."""
    from kafkafs.storage import LogDirError
    from kafkafs.storage import local_path as checked

    try:
        return checked(value)
    except LogDirError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def readable_path(value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
    """Calls `storage.location` and turns its LogDirError into a usage error."""
    from kafkafs.storage import LogDirError, location

    try:
        return location(value)
    except LogDirError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def split_paths(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...]:
    """Splits paths and URLs separated by commas; returns () if there is no value."""
    given = (path.strip() for path in (value or "").split(","))
    return tuple(readable_path(path, parameter, ctx) for path in given if path)
