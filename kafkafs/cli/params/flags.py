"""Flags that several verbs share."""

from __future__ import annotations

from collections.abc import Callable

import click

from .function import Function


def dry_run_option(function: Function) -> Function:
    """Adds `dry_run`, a flag."""
    return click.option(
        "-n",
        "--dry-run",
        is_flag=True,
        help="Print what would be done; change nothing and take no lock.",
    )(function)


def human_option(function: Function) -> Function:
    """Adds `human`, a flag for `output.size_text`."""
    return click.option(
        "-h", "--human-readable", "human", is_flag=True, help="Print sizes like 7.5K, 12M, 3.0G."
    )(function)


def json_option(what: str) -> Callable[[Function], Function]:
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what}.")
