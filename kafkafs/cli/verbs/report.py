"""`kafkafs report`: writes a page that shows what is in log directories."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from kafkafs.places import log_dir_around
from kafkafs.storage import printable

from .. import installation
from ..params.arguments import log_dirs_argument, selection_argument
from ..params.configs import configs_option, tier_options
from ..params.paths import LocalPath
from ..params.times import as_of_option
from ..support import output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import LogDirsReport, Selection


@click.command(
    cls=Verb,
    short_help="Write a page with charts: growth, skew, segments, damage.",
    examples=[
        ("kafkafs report /data -o report.html", "write the page, and print its summary"),
        ("kafkafs report --deep /data -o report.html", "read all records, too, and verify them"),
        (
            "kafkafs report --at 2026-09-03T12:00 /data orders -o noon.html",
            "describe one topic as it was at a time",
        ),
    ],
)
@log_dirs_argument
@selection_argument
@click.option(
    "-o",
    "--output",
    "target",
    type=LocalPath(dir_okay=False, writable=True, allow_dash=True),
    required=True,
    help="The file to write; - is stdout.",
)
@click.option("--deep", is_flag=True, help="Read and verify all records instead of headers only.")
@configs_option
@tier_options
@as_of_option
def command(
    log_dirs: tuple[str, ...],
    selection: Selection,
    target: str,
    deep: bool,
    configs: tuple[Config, ...],
    at: int | None,
) -> int:
    """Describe LOG_DIRS, or only the named topics and partitions, on one page of HTML that needs no
    network: size and rate over time, skew between partitions, segments and when each is deleted,
    compression, groups and their lag, open transactions, damage, configs, gaps and disorder in
    time.

    Without --deep, only indexes and batch headers are read. Nothing is changed. A broker may be
    running.
    """
    from kafkafs.storage import ReportLogDirs, report

    from ..support.driver import perform

    if target != "-":
        _check(target, log_dirs)
    found: list[LogDirsReport] = []
    with installation.needed_by("report", "report"):
        from kafkafs.mount.documents.report.page import page

        request = ReportLogDirs(selection, deep)
        code = perform(log_dirs, configs, request, report, found.append, at=at)
        pages = [page(each) for each in found]
    for each, data in zip(found, pages, strict=True):
        if target == "-":
            output.binary().write(data)
            continue
        output.replace_file(target, data)
        output.binary().writelines(map(output.line, _summary(each)))
    return code


def _check(target: str, log_dirs: tuple[str, ...]) -> None:
    """Raises UsageError, before anything is read, if the page cannot or must not be put there."""
    around = log_dir_around(target, log_dirs)
    if around is not None:
        what = f"{target} is in the log directory {printable(around)}"
        raise click.UsageError(f"{what}, which a report does not change; write it somewhere else")
    above = os.path.dirname(os.path.realpath(target))
    is_special = os.path.exists(target) and not os.path.isfile(target)
    if not is_special and not os.access(above, os.W_OK | os.X_OK):
        raise click.UsageError(f"{target} cannot be created: {above} cannot be written to")


def _summary(report: LogDirsReport) -> list[str]:
    """Returns the page's summary as lines of text."""
    from kafkafs.mount.documents.report.highlights import highlights

    return [f"{each.severity}: {each.text}" for each in highlights(report)]
