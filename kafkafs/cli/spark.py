"""`kafkafs spark`: the jobs that Spark spreads over threads or a cluster, and what they have in
common: the session, progress, the summary."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from . import failures, output
from .params import (
    Function,
    LocalPath,
    choice_argument,
    json_option,
    log_dirs_argument,
    settings_option,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkafs.spark.jobs.report import Report, Row
    from kafkafs.spark.jobs.tasks import Told

# Verb to the module that has it, as `command`; in the order of the help.
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
# What spark-submit sets in the driver that it starts: the master is its to say then.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
_QUIET: Final = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# All that Java does of a job on this machine is to hand out tasks: a compiler that takes long about
# it, and threads that collect garbage side by side, would only take the processors from these.
_LIGHT: Final = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_SHOWN: Final = 1000  # lines of what is wrong, for people

# A job, to be done in a session; it tells how far it is.
Job = Callable[["SparkSession", "Told"], "Report"]


class Jobs(click.Group):
    """Imports the job that is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in JOBS:
            return None
        command: click.Command = importlib.import_module(f"kafkafs.cli.{JOBS[cmd_name]}").command
        return command


@click.group(cls=Jobs, short_help="Jobs for many or large partitions, by Spark.")
def command() -> None:
    """Jobs that Spark does, on all processors of this machine or, with --master or started by
    spark-submit, on a cluster, whose workers see LOG_DIRS by the same paths.

    They need PySpark (`pip install kafkafs[spark]`) and Java.
    """


def job_options(function: Function) -> Function:
    """`log_dirs`, `chosen`, `settings`, `master` and `as_json`, which every job takes."""
    for add in (
        json_option("the report as JSON objects, one a line; what is wrong has `what`"),
        settings_option,
        master_option,
        choice_argument,
        log_dirs_argument,
    ):
        function = add(function)
    return function


def master_option(function: Function) -> Function:
    return click.option(
        "--master",
        metavar="URL",
        help=f"Where Spark runs it: {_DEFAULT_MASTER}, which is the default, spark://HOST:PORT, …",
    )(function)


def output_option(what: str) -> Callable[[Function], Function]:
    """`output`: the directory that a job makes."""
    return click.option(
        "-o",
        "--output",
        metavar="DIR",
        required=True,
        type=LocalPath(file_okay=False),
        help=what,
    )


def state_option(function: Function) -> Function:
    """`state`: of jobs that only read, and so have no output to note finished units in."""
    return click.option(
        "--state",
        metavar="DIR",
        type=LocalPath(file_okay=False),
        help="Note finished parts there; a job that is started again with it goes on.",
    )(function)


def run(what: str, master: str | None, as_json: bool, job: Job) -> int:
    """Does the job in a session of its own, prints its report, and gives the exit code."""
    with session(f"kafkafs spark {what}", master) as spark, output.bar(what) as told, _told():
        report = job(spark, told)
    lines = _json_lines(report) if as_json else _lines(report)
    output.binary().writelines(lines)
    return report.exit_code


@contextmanager
def session(name: str, master: str | None) -> Iterator[SparkSession]:
    """A session, ended at the end. Failure where it cannot be had."""
    _refuse_without_java()
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise failures.Failure("PySpark is not installed: `pip install kafkafs[spark]`") from None
    # The pipe to Java may break, which must not end this process without a word.
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
    with _told():
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _told() -> Iterator[None]:
    """Lets errors of jobs, and of Spark itself, end the verb with a line."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from kafkafs.spark.jobs.notes import OtherJob
    from kafkafs.spark.options import OptionError
    from kafkafs.spark.planning import DataLoss

    try:
        yield
    except (OtherJob, OptionError, DataLoss) as error:
        raise failures.Failure(str(error)) from error
    except (Py4JError, PySparkException) as error:
        raise failures.Failure(f"Spark gave up: {cause(str(error))}") from error


def cause(text: str) -> str:
    """What happened in a task, out of what Spark tells of it: the last line of the innermost Python
    traceback; the first line at all where there is none."""
    told = ""
    in_traceback = False
    for line in text.splitlines():
        if line.startswith("Traceback"):
            in_traceback = True
        elif in_traceback and line and not line[0].isspace():
            told, in_traceback = line, False
    return told or next((line for line in text.splitlines() if line.strip()), "no reason told")


def _refuse_without_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not shutil.which("java", path=os.path.join(home, "bin") if home else None):
        where = f"in JAVA_HOME, {home}" if home else "on the PATH, and JAVA_HOME is not set"
        raise failures.Failure(f"Spark needs Java, and there is none {where}")


def _json_lines(report: Report) -> Iterator[bytes]:
    for row in (*report.rows, *report.wrong):
        yield output.json_line(dict(row))


def _lines(report: Report) -> Iterator[bytes]:
    """What is wrong, the table, and a line about it all."""
    for wrong in report.wrong[:_SHOWN]:
        yield output.line(output.shown(_wrong_line(wrong)))
    if len(report.wrong) > _SHOWN:
        yield output.line(f"… and {len(report.wrong) - _SHOWN} more; --json prints all")
    if report.rows:
        yield from map(output.line, _table(report.columns, report.rows))
    yield output.line(_last_line(report))


def _wrong_line(wrong: Row) -> str:
    """`FILE: position N: WHAT`, or the partition in the place of the file."""
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
        parts.append(f"{report.skipped} of {report.units} parts were finished before")
    parts.append(f"{len(report.wrong)} findings" if report.wrong else "nothing is wrong")
    return f"{report.job}: {', '.join(parts)}"
