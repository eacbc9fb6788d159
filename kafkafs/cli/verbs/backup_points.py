"""`kafkafs backup list`, `verify` and `prune`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from kafkafs.storage import time_text

from ..params.flags import dry_run_option, human_option, json_option
from ..params.paths import ReadablePath
from ..params.times import as_of_option
from ..support import failures, output
from ..support.verb import Verb

if TYPE_CHECKING:
    from kafkafs.storage import ListedPoint, Pruned, PrunedPoint

_dest = click.argument("dest", metavar="DEST", type=ReadablePath())
_KEPT: Final = (
    ("last", "Keep the last N points."),
    ("hourly", "Keep the newest point of each of the last N hours that have one."),
    ("daily", "Keep the newest point of each of the last N days that have one, in UTC."),
    ("weekly", "The same for weeks, which begin on Monday."),
    ("monthly", "The same for months."),
)


def _take(rows: Iterable[Any], put: Callable[[Any], object]) -> int:
    """Calls `put` with every row, reports what failed, and returns the exit code."""
    from kafkafs.storage import PartitionFailed

    code = 0
    for row in rows:
        if isinstance(row, PartitionFailed):
            code = failures.report_row(row)
        else:
            put(row)
    return code


@click.command(
    "list",
    cls=Verb,
    short_help="List the points in time of a backup.",
    examples=[
        ("kafkafs backup list -h /backup", "list them, with readable sizes"),
        (
            "kafkafs ls $(kafkafs backup list --json /backup | jq -r .manifest | head -1)",
            "list the topics of the oldest",
        ),
    ],
)
@_dest
@human_option
@json_option("one JSON object per point, one per line")
def list_command(dest: str, human: bool, as_json: bool) -> int:
    """List the points in time of the backup DEST, the oldest first: the bytes of its files, and of
    these, those that no earlier point has. The path of a point can be given as LOG_DIRS.
    """
    from kafkafs.storage import list_points

    found: list[ListedPoint] = []
    code = _take(list_points(dest), found.append)
    if as_json:
        output.json_rows(found)
    elif found:
        output.table(_listed(found, human), right=(1, 2, 3))
    elif not code:
        failures.warn(f"{dest}: the backup has no point in time yet")
    return code


def _listed(found: Iterable[ListedPoint], human: bool) -> Iterator[tuple[str, ...]]:
    yield "TIME", "FILES", "SIZE", "NEW", "TOPICS", "PATH"
    for each in found:
        yield (
            time_text(each.time_ms),
            str(each.files),
            output.size_text(each.size, human),
            output.size_text(each.new_bytes, human),
            output.shown(",".join(each.topics)) or "all",
            output.shown(each.manifest),
        )


@click.command(
    "verify",
    cls=Verb,
    short_help="Read a whole backup, and compare it with its checksums.",
    examples=[
        ("kafkafs backup verify /backup", "check all points"),
        ("kafkafs backup verify --at 2026-11-25 /backup", "check one"),
    ],
)
@_dest
@as_of_option
@json_option("one JSON object per point, one per line")
def verify_command(dest: str, at: int | None, as_json: bool) -> int:
    """Read every object of the backup DEST, and compare it with the SHA-256 in the manifests. With
    --at, only those of the newest point at or before TIME.

    Missing and changed objects are reported on stderr, with exit code 1. If they are removed, the
    next backup stores their bytes again, as far as LOG_DIRS still have them.
    """
    from kafkafs.storage import verify_points

    from ..support.driver import progress_bars

    with progress_bars() as progress:
        found: list[Any] = []
        code = _take(verify_points(dest, at, progress), found.append)
    if as_json:
        output.json_rows(found)
        return code
    rows = [("TIME", "OBJECTS", "BYTES", "RESULT")]
    for each in found:
        result = f"{each.problems} objects are wrong" if each.problems else "complete"
        rows.append((time_text(each.time_ms), str(each.objects), str(each.size), result))
    output.table(rows, right=(1, 2))
    return code


def _keep_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for name, what in reversed(_KEPT):
        function = click.option(
            f"--keep-{name}", type=click.IntRange(min=0), default=0, metavar="N", help=what
        )(function)
    return function


@click.command(
    "prune",
    cls=Verb,
    short_help="Remove old points in time of a backup.",
    examples=[
        (
            "kafkafs backup prune --keep-daily 7 --keep-weekly 4 /backup",
            "keep a week of days and four weeks",
        ),
        ("kafkafs backup prune --dry-run --keep-last 3 /backup", "show what would be removed"),
    ],
)
@_dest
@_keep_options
@dry_run_option
@human_option
@json_option("one JSON object per point, then one for the objects")
def prune_command(
    dest: str,
    keep_last: int,
    keep_hourly: int,
    keep_daily: int,
    keep_weekly: int,
    keep_monthly: int,
    dry_run: bool,
    human: bool,
    as_json: bool,
) -> int:
    """Remove the points in time of the backup DEST that none of the --keep options keeps, never the
    newest, and then all objects that no other point has: also those of interrupted backups.
    """
    from kafkafs.storage import Keep, prune_points

    keep = Keep(keep_last, keep_hourly, keep_daily, keep_weekly, keep_monthly)
    if not keep:
        raise click.UsageError("say which points to keep, as in --keep-daily 7")
    found = prune_points(dest, keep, dry_run=dry_run)
    if as_json:
        output.json_rows([*found.points, found])
        return 0
    output.table(_pruned(found.points, dry_run))
    output.binary().write(output.line(_objects_line(found, human, dry_run)))
    return 0


def _pruned(points: Iterable[PrunedPoint], dry_run: bool) -> Iterator[tuple[str, ...]]:
    yield "TIME", "RESULT", "KEPT BY"
    for each in points:
        result = "kept" if each.is_kept else "would be removed" if dry_run else "removed"
        yield time_text(each.time_ms), result, ", ".join(each.rules) or "-"


def _objects_line(objects: Pruned, human: bool, dry_run: bool) -> str:
    size = output.size_text(objects.size, human)
    what = "would be removed" if dry_run else "were removed"
    return f"{objects.objects} objects of {size} bytes {what}"
