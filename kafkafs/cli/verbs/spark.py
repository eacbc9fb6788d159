"""`kafkafs spark`: jobs that Spark runs on all processors or on a cluster.

This module has what they share: options, the session, progress and the summary.
"""

from __future__ import annotations

import functools
import importlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import click

from .. import installation
from ..params.arguments import log_dirs_argument, selection_argument
from ..params.configs import configs_option
from ..params.flags import json_option
from ..params.function import Function
from ..params.paths import LocalPath
from ..support import failures, output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkafs.spark.jobs.report import Report, Row
    from kafkafs.storage import Selection

    from ..support.words import Config

# Maps each job to the module that defines it, as `command`; in the order of the help.
JOBS: Final = {
    "verify": "spark_verify",
    "stats": "spark_stats",
    "compact": "spark_compact",
    "reindex": "spark_reindex",
    "export": "spark_export",
    "import": "spark_import",
    "salvage": "spark_salvage",
    "merge": "spark_merge",
}

_DEFAULT_MASTER: Final = "local[*]"
# Set by spark-submit in the driver that it starts; it also decides the master.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
_QUIET: Final = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# On this machine, Java only schedules tasks: an optimizing compiler and parallel garbage collection
# would only take processor time from them.
_LIGHT: Final = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_SHOWN: Final = 1000  # the most findings printed as text


class Jobs(click.Group):
    """Imports the requested job."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in JOBS:
            return None
        command: click.Command = importlib.import_module(
            f"kafkafs.cli.verbs.{JOBS[cmd_name]}"
        ).command
        return command


@click.group(cls=Jobs, short_help="Run Spark jobs for many or large partitions.")
def command() -> None:
    """Run Spark jobs on all processors of this machine or, with --master or spark-submit, on a
    cluster whose workers see LOG_DIRS under the same paths.

    Requires PySpark (`pip install 'kafkafs[spark]'`) and Java.
    """


@dataclass(frozen=True, slots=True)
class RunJob:
    """Runs a job with the arguments that every job takes."""

    log_dirs: tuple[str, ...]
    selection: Selection
    configs: tuple[Config, ...]
    master: str | None
    as_json: bool

    def __call__(self, job: Callable[..., Report], *paths: object, **options: object) -> int:
        """Runs the job in a new session, prints its report, and returns the exit code. `paths` and
        `options` are the job's own."""
        what = job.__name__.rstrip("_")
        with (
            session(f"kafkafs spark {what}", self.master) as spark,
            output.bar(what) as on_progress,
            _failing(),
        ):
            report = job(
                spark,
                self.log_dirs,
                *paths,
                topics=self.selection.names,
                configs=dict(self.configs),
                on_progress=on_progress,
                **options,
            )
        lines = _json_lines(report) if self.as_json else _lines(report)
        output.binary().writelines(lines)
        return report.exit_code


def job_options(function: Callable[..., int]) -> Callable[..., int]:
    """Adds the arguments and options that every job takes, and passes them as `run`."""

    @functools.wraps(function)
    def with_job(**given: Any) -> int:
        common = {each.name: given.pop(each.name) for each in fields(RunJob)}
        return function(run=RunJob(**common), **given)

    for add in (
        json_option("the report as JSON objects, one per line; those of findings have `what`"),
        configs_option,
        _master_option,
        selection_argument,
        log_dirs_argument,
    ):
        add(with_job)
    return with_job


def _master_option(function: Function) -> Function:
    return click.option(
        "--master",
        metavar="URL",
        help=f"The Spark master: spark://HOST:PORT, …  [default: {_DEFAULT_MASTER}]",
    )(function)


def output_option(what: str) -> Callable[[Function], Function]:
    """Adds `output`: the directory that a job creates."""
    return click.option(
        "-o",
        "--output",
        metavar="DIR",
        required=True,
        type=LocalPath(file_okay=False),
        help=what,
    )


def state_option(function: Function) -> Function:
    """Adds `state`, for jobs that have no output directory in which to note finished units."""
    return click.option(
        "--state",
        metavar="DIR",
        type=LocalPath(file_okay=False),
        help="Record progress in DIR, so that the same command resumes an interrupted job.",
    )(function)


@contextmanager
def session(name: str, master: str | None) -> Iterator[SparkSession]:
    """Opens a session for the block. Raises Failure if Java or PySpark is missing."""
    with installation.needed_by(name.removeprefix("kafkafs "), "spark"):
        from pyspark.sql import SparkSession
    _refuse_without_java()
    # The pipe to Java may break, which must not kill this process silently.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.Builder().appName(name)
    if _SUBMITTED not in os.environ:
        master = master or _DEFAULT_MASTER
        is_here = master.startswith("local")
        for option, value in {**_QUIET, **(_LIGHT if is_here else {})}.items():
            builder = builder.config(option, value)
    if master is not None:
        builder = builder.master(master)
    with _failing():
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _failing() -> Iterator[None]:
    """Turns errors of jobs, and of Spark itself, into a Failure."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from kafkafs.spark.option_texts import OptionError

    try:
        yield
    except OptionError as error:
        raise failures.Failure(str(error)) from error
    except (Py4JError, PySparkException) as error:
        raise failures.Failure(f"Spark failed: {cause(str(error))}") from error


def cause(text: str) -> str:
    """Extracts the cause of a task's failure from Spark's message: the last line of the innermost
    Python traceback, or the first line of the message if there is no traceback."""
    last_line = ""
    in_traceback = False
    for line in text.splitlines():
        if line.startswith("Traceback"):
            in_traceback = True
        elif in_traceback and line and not line[0].isspace():
            last_line, in_traceback = line, False
    return last_line or next(
        (line for line in text.splitlines() if line.strip()), "no reason given"
    )


def _refuse_without_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not shutil.which("java", path=os.path.join(home, "bin") if home else None):
        where = f"in JAVA_HOME, {home}" if home else "on the PATH, and JAVA_HOME is not set"
        raise failures.Failure(f"Spark needs Java, but there is no java {where}")


def _json_lines(report: Report) -> Iterator[bytes]:
    for row in (*report.rows, *report.wrong):
        yield output.json_line(dict(row))


def _lines(report: Report) -> Iterator[bytes]:
    """Yields the findings, the table, and a summary line."""
    for wrong in report.wrong[:_SHOWN]:
        yield output.line(output.shown(_wrong_line(wrong)))
    if len(report.wrong) > _SHOWN:
        yield output.line(f"… and {len(report.wrong) - _SHOWN} more; --json prints all")
    if report.rows:
        yield from map(output.line, _table(report.columns, report.rows))
    yield output.line(_last_line(report))


def _wrong_line(wrong: Row) -> str:
    """Formats a finding: `FILE: position N: WHAT`, or with the partition instead of the file."""
    place = [str(wrong["file"])] if wrong.get("file") else []
    if not place and "topic" in wrong:
        place = [f"{wrong['topic']}-{wrong['partition']}"]
    if wrong.get("position", -1) >= 0:
        place.append(f"position {wrong['position']}")
    return ": ".join([*place, str(wrong["what"])])


def _table(columns: Iterable[str], rows: Iterable[Row]) -> Iterable[str]:
    names = list(columns)
    cells = [[_cell(row[name]) for name in names] for row in rows]
    numbers = {at for at, name in enumerate(names) if all(_is_number(row[name]) for row in rows)}
    return output.aligned([names, *cells], right=numbers)


def _cell(value: Any) -> str:
    return "-" if value is None else output.shown(str(value))


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _last_line(report: Report) -> str:
    parts = [f"{name} {value}" for name, value in report.totals.items()]
    if report.skipped:
        parts.append(f"{report.skipped} of {report.units} parts were already finished")
    parts.append(f"{len(report.wrong)} findings" if report.wrong else "nothing is wrong")
    return f"{report.job}: {', '.join(parts)}"
