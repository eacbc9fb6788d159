"""`kafkafs stat`: prints attributes and extended attributes of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from ..params.arguments import log_dirs_argument, paths_argument
from ..params.configs import reading_options, schema_option
from ..params.flags import json_option
from ..params.times import as_of_option
from ..support.verb import Verb
from ..support.words import Config


@click.command(
    cls=Verb,
    short_help="Print a file's size, time, key, headers and batch.",
    examples=[
        (
            "kafkafs stat /data orders/0/offset/600",
            "print a record's size, time, key, headers and batch",
        ),
        (
            "kafkafs stat -L /data orders/0/offset/last",
            "print those of the record that a link points to",
        ),
        (
            "kafkafs stat --json /data orders/0/offset/600 | jq -r '.xattrs[\"user.kafka.codec\"]'",
            "print the compression codec of its batch",
        ),
    ],
)
@log_dirs_argument
@paths_argument(required=False)
@click.option("-L", "--dereference", is_flag=True, help="Follow links.")
@reading_options
@schema_option
@as_of_option
@json_option("one JSON object per PATH, one per line; times are in ms since 1970")
def command(
    log_dirs: tuple[str, ...],
    paths: tuple[str, ...],
    dereference: bool,
    configs: tuple[Config, ...],
    isolation: str,
    at: int | None,
    as_json: bool,
) -> int:
    """Print the attributes and extended attributes of each PATH (default: the root of the tree).

    Values that are not UTF-8 are printed as 0x and hexadecimal digits, in JSON as
    {"base64": "…"}.
    """
    from ..support.attributes import describe
    from ..support.opening import for_each, open_tree, resolve
    from ..support.output import binary, json_line, line

    tree = open_tree(log_dirs, configs, isolation, at)
    out = binary()

    def print_attributes(path: str) -> None:
        node = resolve(tree, path) if dereference else tree.resolve(path)
        facts = describe(node, path)
        if as_json:
            out.write(json_line(facts))
        else:
            out.writelines(line(text) for text in _lines(facts, node.xattrs()))

    return for_each(paths or ("",), print_attributes)


def _lines(facts: Mapping[str, Any], xattrs: Mapping[str, bytes]) -> Iterator[str]:
    from ..support.output import bytes_as_text, shown, time_text

    yield shown(facts["path"])
    rows = [(name, str(facts[name])) for name in ("kind", "mode", "size", "mtime", "inode")]
    if facts["size"] is None:
        rows[2] = ("size", "-")
    rows[3] = ("mtime", time_text(facts["mtime"]))
    if "target" in facts:
        rows.append(("target", shown(facts["target"])))
    rows += [(shown(name), bytes_as_text(value)) for name, value in xattrs.items()]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        yield f"  {name:{width}}  {value}".rstrip()
