"""`kafkafs spark stats`: counts records and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..params.configs import ISOLATION_LEVELS
from ..params.paths import LocalPath
from ..params.times import as_of_option
from ..support.verb import Verb
from .spark import RunJob, job_options

if TYPE_CHECKING:
    from kafkafs.spark.jobs.stats import By

_BY = ("topic", "partition", "hour", "prefix")


@click.command(
    "stats",
    cls=Verb,
    short_help="Count records and bytes by partition, hour or key prefix.",
    examples=[
        ("kafkafs spark stats /data", "count by partition"),
        (
            "kafkafs spark stats --by topic,hour -o hours.parquet /data",
            "count by hour, and write the result to a Parquet file",
        ),
        (
            "kafkafs spark stats --by prefix --separator : /data orders",
            "count by the part of the key before the first colon",
        ),
    ],
)
@click.option(
    "--by",
    metavar="NAME,…",
    default="topic,partition",
    show_default=True,
    callback=lambda ctx, parameter, value: _split(value),
    help=f"Group by these columns: {', '.join(_BY)}.",
)
@click.option(
    "--prefix-bytes",
    metavar="N",
    type=click.IntRange(1),
    help="The prefix is the first N bytes of the key.",
)
@click.option("--separator", metavar="TEXT", help="The prefix is the part of the key before TEXT.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=LocalPath(dir_okay=False),
    help="Also write the result to a Parquet file.",
)
@click.option(
    "--isolation",
    type=click.Choice(ISOLATION_LEVELS),
    default="read_uncommitted",  # as in every read with Spark, its own Kafka source included
    show_default=True,
    help="Whether to omit or count records of open and aborted transactions.",
)
@as_of_option
@job_options
def command(
    run: RunJob,
    by: tuple[By, ...],
    prefix_bytes: int | None,
    separator: str | None,
    output: str | None,
    isolation: str,
    at: int | None,
) -> int:
    """Count the records in LOG_DIRS, or only in the named topics and partitions: records, bytes of
    keys and values, null values, first and last offset and timestamp (ms since 1970).

    An hour is given by its start in ms since 1970 (UTC). Without --prefix-bytes or --separator, the
    prefix is the whole key. Damage is skipped and reported, with exit code 1.
    """
    from kafkafs.spark.jobs import stats

    return run(
        stats,
        by=by,
        prefix_bytes=prefix_bytes or 0,
        separator=(separator or "").encode(),
        output=output,
        isolation=isolation,
        at=at,
    )


def _split(value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    for name in names:
        if name not in _BY:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(_BY)}")
    if not names:
        raise click.BadParameter("no column given")
    return names
