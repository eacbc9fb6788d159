"""`kafkafs spark stats`: how many records and bytes of what there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .params import ISOLATION_LEVELS, Choice, LocalPath, Setting
from .spark import job_options, run
from .verb import Verb

if TYPE_CHECKING:
    from kafkafs.spark.jobs.stats import By

_BY = ("topic", "partition", "hour", "prefix")


@click.command(
    "stats",
    cls=Verb,
    short_help="Count records and bytes by partition, hour and prefix of the key.",
    examples=[
        ("kafkafs spark stats /data", "by partition"),
        ("kafkafs spark stats --by topic,hour -o hours.parquet /data", "by hour, into a file"),
        (
            "kafkafs spark stats --by prefix --separator : /data orders",
            "keys up to the first colon",
        ),
    ],
)
@click.option(
    "--by",
    metavar="NAME,…",
    default="topic,partition",
    show_default=True,
    callback=lambda ctx, parameter, value: _split(value),
    help=f"What to count by: {', '.join(_BY)}.",
)
@click.option("--prefix-bytes", type=click.IntRange(1), help="A prefix is so many bytes of a key.")
@click.option("--separator", metavar="TEXT", help="A prefix is what stands in front of TEXT.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=LocalPath(dir_okay=False),
    help="Write the rows to a Parquet file, too.",
)
@click.option(
    "--isolation",
    type=click.Choice(ISOLATION_LEVELS),
    default=ISOLATION_LEVELS[0],
    show_default=True,
    help="Whether the records of open and aborted transactions count.",
)
@job_options
def command(
    log_dirs: tuple[str, ...],
    chosen: tuple[Choice, ...],
    settings: tuple[Setting, ...],
    master: str | None,
    as_json: bool,
    by: tuple[By, ...],
    prefix_bytes: int | None,
    separator: str | None,
    output: str | None,
    isolation: str,
) -> int:
    """Count the records in LOG_DIRS, or of what is named: records, bytes of keys and values, null
    values, first and last offset and timestamp (ms since 1970).

    Hours are UTC, told by the ms since 1970 when they begin. Without --prefix-bytes or --separator
    the prefix is the whole key. Damage is passed over and told, and the exit code is 1.
    """
    from kafkafs.spark.jobs import stats

    return run(
        "stats",
        master,
        as_json,
        lambda spark, told: stats(
            spark,
            log_dirs,
            chosen,
            by=by,
            prefix_bytes=prefix_bytes or 0,
            separator=(separator or "").encode(),
            output=output,
            isolation=isolation,
            settings=dict(settings),
            told=told,
        ),
    )


def _split(value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    for name in names:
        if name not in _BY:
            raise click.BadParameter(f"{name!r} is none of {', '.join(_BY)}")
    if not names:
        raise click.BadParameter("names nothing")
    return names
