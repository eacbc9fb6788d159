"""`kafkafs sql`: answers queries on topics, and on what describes them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import BinaryIO

import click

from kafkafs.places import log_dir_around
from kafkafs.storage import printable

from .. import installation
from ..params.arguments import log_dirs_argument
from ..params.configs import reading_options, schema_option
from ..params.paths import LocalFile, LocalPath
from ..params.times import as_of_option
from ..query import BINARY, FORMATS, SUFFIXES
from ..support import failures, output
from ..support.verb import Verb
from ..support.words import Config


@click.command(
    cls=Verb,
    short_help="Query topics, groups, segments and schemas in SQL.",
    examples=[
        (
            "kafkafs sql /data 'SELECT partition, count(*) FROM orders GROUP BY ALL'",
            "count the records of each partition, without decoding them",
        ),
        (
            'kafkafs sql /data "SELECT key, count(*) FROM orders GROUP BY 1 ORDER BY 2 DESC"',
            "list the keys, those with the most records first",
        ),
        (
            "kafkafs sql /data \"SELECT sum((decode(value)->>'amount')::DOUBLE) FROM orders\"",
            "sum a field of JSON values",
        ),
        (
            "kafkafs sql /data \"FROM orders WHERE timestamp >= '2026-09-03'\" -o orders.parquet",
            "write the records from a time on to a file",
        ),
        (
            "kafkafs sql /data 'SELECT topic, max(lag) FROM groups GROUP BY 1' --format markdown",
            "list how far groups are behind",
        ),
        ("kafkafs sql /data", "enter statements one after the other, with history and completion"),
    ],
)
@log_dirs_argument
@click.argument("query", required=False)
@click.option(
    "-f",
    "--file",
    "script",
    type=LocalFile("rb"),
    help="Read the statements from a file; - is stdin.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Format of results.  [default: by the name of FILE, else table on a terminal, else csv]",
)
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    type=LocalPath(dir_okay=False, writable=True, allow_dash=True),
    help="Write results to FILE, which is replaced once all are complete; - is stdout.",
)
@click.option(
    "--files", is_flag=True, help="Let statements read and write files, and load extensions."
)
@reading_options
@schema_option
@as_of_option
def command(
    log_dirs: tuple[str, ...],
    query: str | None,
    script: BinaryIO | None,
    form: str | None,
    target: str | None,
    files: bool,
    configs: tuple[Config, ...],
    isolation: str,
    at: int | None,
) -> int:
    """Answer statements of SQL, separated by semicolons: QUERY, those of a file, or of stdin if
    that is no terminal. Without any, start a shell. DuckDB computes the answers in this process,
    and writes to a temporary directory what does not fit into memory.

    Each topic is a table with the columns key, value, topic, partition, "offset", timestamp,
    timestampType and headers, and decoded and decodeError if its values have a schema, in the topic
    of a schema registry or by --schema. The tables topics, partitions, segments, groups, schemas
    and transactions describe LOG_DIRS; they are also in the schema kafkafs, as in kafkafs.topics,
    which has them if topics have these names. Only the columns that a query names are decoded; a
    filter on partition, offset or timestamp selects what is read, which EXPLAIN shows. Times are in
    UTC.

    Damaged records end a query with an error. Unless --files is given, statements can read no file
    and write none. Nothing in LOG_DIRS is changed. A broker may be running.
    """
    if query is not None and script is not None:
        raise click.UsageError("QUERY cannot be used with --file")
    to_file = target not in (None, "-")
    if target is not None and to_file:
        _check(target, log_dirs)
        form = form or SUFFIXES.get(os.path.splitext(target)[1].lower())
    if query is None and script is None and sys.stdin is None:
        raise click.UsageError("there are no statements: stdin is closed")
    is_shell = query is None and script is None and sys.stdin.isatty()
    on_terminal = not to_file and output.is_terminal()
    form = form or ("table" if on_terminal or is_shell else "csv")
    if form in BINARY and on_terminal:
        raise click.UsageError(f"--format {form} is not for a terminal; use -o FILE")
    if is_shell and to_file:
        raise click.UsageError("-o needs a query: QUERY, --file or stdin")
    if not is_shell:
        query = _statements(query, script)
    installation.import_arrow_without_pandas()
    with installation.needed_by("sql", "sql"):
        from ..query.running import Results, opened

        if is_shell:
            from ..query.shell import run_shell

    with ExitStack() as stack:
        stack.enter_context(_ending_in_order())
        session, missing = stack.enter_context(
            opened(log_dirs, configs, at=at, isolation=isolation, files=files)
        )
        if target is not None and to_file:
            out: output.Output = stack.enter_context(output.replacing(target))
        else:
            out = stack.enter_context(output.of_records())
        if query is None:
            run_shell(session, Results(session, form, out))
            return 0
        Results(session, form, out).run(query)
        return 1 if missing else 0


def _statements(query: str | None, script: BinaryIO | None) -> str:
    """Returns the text of QUERY, of the file `script`, or of stdin. Raises Failure unless it is
    UTF-8."""
    if query is not None:
        place, data = "QUERY", os.fsencode(query)
    else:
        file = script or sys.stdin.buffer
        place, data = str(getattr(script, "name", "stdin")), file.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise failures.Failure(f"{place}: not UTF-8 at position {error.start}") from None


def _check(target: str, log_dirs: tuple[str, ...]) -> None:
    """Raises UsageError, before anything is read, if the file must not be put there."""
    around = log_dir_around(target, log_dirs)
    if around is not None:
        what = f"{target} is in the log directory {printable(around)}"
        raise click.UsageError(f"{what}, which a query does not change; write it somewhere else")


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP raise KeyboardInterrupt in the block, and the end of a pipe an
    OSError, so that what was spilled is removed. Then they end the process, as usual."""
    heard: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    names = [name for name in ("SIGTERM", "SIGHUP", "SIGPIPE") if hasattr(signal, name)]
    before = {getattr(signal, name): signal.getsignal(getattr(signal, name)) for name in names}
    usual = [each for each, handler in before.items() if handler is signal.SIG_DFL]
    for each in usual:
        signal.signal(each, signal.SIG_IGN if each.name == "SIGPIPE" else end)
    try:
        yield
    except BrokenPipeError:
        heard.append(signal.SIGPIPE)
        raise
    finally:
        for each in usual:
            signal.signal(each, before[each])
        if heard:
            os.kill(os.getpid(), heard[0])
