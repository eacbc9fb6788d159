"""Options that are times."""

from __future__ import annotations

from collections.abc import Callable

import click

from .function import Function


def since_until_options(function: Function) -> Function:
    """Adds `since` and `until`: milliseconds since 1970, None if not given."""
    for name, what in (("--until", "before the first"), ("--since", "from the first")):
        function = click.option(
            name,
            metavar="TIME",
            callback=parse_time,
            help=f"Only list records {what} one at or after TIME (same formats as time/TIME).",
        )(function)
    return function


def from_until_options(function: Function) -> Function:
    """Adds `since_ms` and `until_ms`: milliseconds since 1970, None if not given."""
    for option, name, what in (
        ("--until", "until_ms", "before the first"),
        ("--from", "since_ms", "from the first"),
    ):
        function = click.option(
            option,
            name,
            metavar="TIME",
            callback=parse_time,
            help=f"Only records {what} one at or after TIME (ms since 1970 or ISO 8601).",
        )(function)
    return function


def time_option(function: Function) -> Function:
    """Adds `at` for verbs with --dry-run: milliseconds since 1970, None if not given."""
    return _at_option("With --dry-run: preview the result as of TIME")(function)


def as_of_option(function: Function) -> Function:
    """Adds `at` for verbs that only read."""
    return _at_option("Show the state as of TIME")(function)


def no_as_of_option(why: str) -> Callable[[Function], Function]:
    """Refuses --at, and says why, for verbs that read files and not records."""

    def refuse(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise click.UsageError(f"--at cannot be used: {why}")

    return click.option("--at", hidden=True, expose_value=False, callback=refuse)


def _at_option(what: str) -> Callable[[Function], Function]:
    return click.option(
        "--at",
        metavar="TIME",
        callback=parse_time,
        help=f"{what} (ms since 1970 or ISO 8601).",
    )


def parse_time(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    from kafkafs.storage import milliseconds

    if value is None:
        return None
    try:
        return milliseconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
