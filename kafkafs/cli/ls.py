"""`kafkafs ls`: the names in the tree."""

from __future__ import annotations

import click

from . import failures
from .params import (
    Setting,
    as_of_option,
    human_option,
    json_option,
    log_dirs_argument,
    paths_argument,
    reading_options,
    since_until_options,
)
from .verb import Verb


@click.command(
    cls=Verb,
    short_help="List topics, partitions, records and other files of the tree.",
    examples=[
        ("kafkafs ls /data", "the topics"),
        ("kafkafs ls /data orders/0", "what a partition shows"),
        ("kafkafs ls -l /data orders/0/offset | tail -3", "the last records, sizes and times"),
        ("kafkafs ls /data1,/data2 orders/0/segments", "several log directories as one"),
        (
            "kafkafs ls --since 2018-05-15T11:00 --until 2018-05-15T12:00 /data orders/0/offset",
            "the records of an hour, found by the time index",
        ),
        (
            "kafkafs ls --json /data orders/0/offset | jq -s 'max_by(.size).name'",
            "the largest record",
        ),
    ],
)
@log_dirs_argument
@paths_argument(required=False)
@click.option("-l", "long", is_flag=True, help="With kind and mode, size, time (UTC).")
@human_option
@click.option("-1", "single", is_flag=True, help="A name a line; so it is in a pipe, too.")
@click.option("-a", "--all", "hidden", is_flag=True, help="Also names that begin with a dot.")
@click.option("-d", "--directory", "itself", is_flag=True, help="Directories themselves.")
@since_until_options
@reading_options
@as_of_option
@json_option("one JSON object a line for each name; times are milliseconds since 1970")
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
    settings: tuple[Setting, ...],
    isolation: str,
    at: int | None,
    as_json: bool,
) -> int:
    """List what is at PATHS, the topics without any: a directory's names, a file's own.

    Names come in the tree's order, records by offset, as they are read: a long listing begins at
    once and needs little memory. Where bytes of the log are damaged the records in them are left
    out, the error goes to stderr, and the exit code is 1.

    --at is for what depends on the time: why.json, and compacted/ without latest/.
    """
    from .listing import Style, print_listing
    from .opening import for_each, open_tree, refuse_at
    from .output import binary, is_terminal, line, shown

    if at is not None:
        refuse_at(paths or ("",))
    tree = open_tree(log_dirs, settings, isolation, at)
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
            code = failures.tell(error)
    return code
