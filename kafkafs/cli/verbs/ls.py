"""`kafkafs ls`: lists names in the tree."""

from __future__ import annotations

import click

from ..params.arguments import log_dirs_argument, paths_argument
from ..params.configs import reading_options, schema_option
from ..params.flags import human_option, json_option
from ..params.times import as_of_option, since_until_options
from ..support import failures
from ..support.verb import Verb
from ..support.words import Config


@click.command(
    cls=Verb,
    short_help="List topics, partitions, records and other files in the tree.",
    examples=[
        ("kafkafs ls /data", "list topics"),
        ("kafkafs ls /data orders/0", "list the entries of a partition"),
        (
            "kafkafs ls -l /data orders/0/offset | tail -3",
            "show the last records with size and time",
        ),
        ("kafkafs ls /data1,/data2 orders/0/segments", "list several log directories as one"),
        (
            "kafkafs ls --since 2018-05-15T11:00 --until 2018-05-15T12:00 /data orders/0/offset",
            "list the records of one hour, found by the time index",
        ),
        (
            "kafkafs ls --json /data orders/0/offset | jq -s 'max_by(.size).name'",
            "find the largest record",
        ),
    ],
)
@log_dirs_argument
@paths_argument(required=False)
@click.option("-l", "long", is_flag=True, help="Show type and mode, size and time (UTC).")
@human_option
@click.option("-1", "single", is_flag=True, help="Print one name per line; the default in a pipe.")
@click.option("-a", "--all", "hidden", is_flag=True, help="Show names that begin with a dot, too.")
@click.option(
    "-d",
    "--directory",
    "itself",
    is_flag=True,
    help="List directories themselves, not their contents.",
)
@since_until_options
@reading_options
@schema_option
@as_of_option
@json_option("one JSON object per name, one per line; times are in ms since 1970")
def command(
    log_dirs: tuple[str, ...],
    paths: tuple[str, ...],
    long: bool,
    human: bool,
    single: bool,
    hidden: bool,
    itself: bool,
    since: int | None,
    until: int | None,
    configs: tuple[Config, ...],
    isolation: str,
    at: int | None,
    as_json: bool,
) -> int:
    """List the directory or file at each PATH; without PATH, list the topics.

    Names are printed as they are read, records in offset order, so a long listing starts at once
    and needs little memory. If a log is damaged, omit the damaged records, report the damage on
    stderr, and exit with code 1.

    With --at, list what a mount of that time would show: every partition ends before the first
    record that is later.
    """
    from ..support.listing import Style, print_listing
    from ..support.opening import for_each, open_tree
    from ..support.output import binary, is_terminal, line, shown

    tree = open_tree(log_dirs, configs, isolation, at)
    out = binary()
    span = None if since is None and until is None else (since, until)
    style = Style(long=long, human=human, columns=is_terminal() and not single, as_json=as_json)
    headings = len(paths) > 1 and not (as_json or itself)
    separator = b""

    def print_names(path: str) -> None:
        nonlocal separator
        node = tree.resolve(path)
        if headings:
            out.write(separator + line(f"{shown(path or '/')}:"))
            separator = line("")
        print_listing(node, path, style, out, hidden=hidden, itself=itself, span=span)

    code = for_each(paths or ("",), print_names)
    for log in tree.catalog.engine.opened():
        for error in log.damage.values():
            code = failures.report(error)
    return code
