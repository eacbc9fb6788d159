"""`kafkafs backup`: the command group, and the making of a point in time, its default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from kafkafs.storage import time_text

from ..params.arguments import log_dirs_argument, selection_argument
from ..params.configs import configs_option
from ..params.flags import dry_run_option, human_option, json_option
from ..params.paths import ReadablePath
from ..params.times import no_as_of_option
from ..support import output
from ..support.verb import Verb
from ..support.words import Config
from . import backup_points

if TYPE_CHECKING:
    from kafkafs.storage import BackedUpPartition, FinishedPoint, Selection

_DEFAULT: Final = "create"
_BANDWIDTH: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([KMG]?)(i?)B?(?:/s)?", re.I)
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3}


class _Backup(click.Group):
    """Makes a point in time unless the name of another command comes first."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_help = args and args[0] in ctx.help_option_names
        if args and args[0] not in self.commands and not is_help:
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Backup, short_help="Copy log directories, also of a live broker; incrementally.")
def command() -> None:
    """Make consistent, incremental copies of log directories: `kafkafs backup LOG_DIRS DEST` is
    short for `kafkafs backup create LOG_DIRS DEST`. Every run is a point in time of its own.

    All verbs that read accept DEST as LOG_DIRS and read its newest point in place; --at TIME
    selects the newest one at or before TIME. A path that `kafkafs backup list` prints is one point.
    """


command.add_command(backup_points.list_command)
command.add_command(backup_points.verify_command)
command.add_command(backup_points.prune_command)


def _bandwidth(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Parses 50MB, 1.5GB/s or 800KiB into bytes per second."""
    if value is None:
        return None
    match = _BANDWIDTH.fullmatch(value.strip())
    base = 1024 if match is not None and match[3] else 1000
    found = int(float(match[1]) * base ** _POWERS[match[2].upper()]) if match is not None else 0
    if found < 1:
        raise click.BadParameter(f"{value!r} is not a number of bytes per second, as in 50MB")
    return found


@command.command(
    _DEFAULT,
    cls=Verb,
    short_help="Make a point in time (the default).",
    examples=[
        ("kafkafs backup /data /backup", "copy a broker's directory, also while it runs"),
        ("kafkafs backup --bandwidth 50MB /data1,/data2 /backup", "spare the broker's disks"),
        ("kafkafs backup /data /backup orders payments", "copy two topics, and the internal ones"),
        ("kafkafs backup /data s3://bucket/backup", "copy into a bucket"),
        ("kafkafs cat /backup orders/0/offset/600", "read the newest point in place"),
        ("kafkafs groups --at 2026-11-25 /backup", "read an earlier one"),
        ("kafkafs revive /backup -o /new", "make a directory of it on which Kafka starts"),
    ],
)
@log_dirs_argument
@click.argument("dest", metavar="DEST", type=ReadablePath(file_okay=False))
@selection_argument
@click.option(
    "--bandwidth",
    metavar="RATE",
    callback=_bandwidth,
    help="Read at most RATE bytes per second, as in 50MB.",
)
@click.option(
    "--reread", is_flag=True, help="Also read files that look as they did at the last run."
)
@dry_run_option
@no_as_of_option("a backup is made of what the directories hold now")
@configs_option
@human_option
@json_option("one JSON object per partition, then one for the point")
def create_command(
    log_dirs: tuple[str, ...],
    dest: str,
    selection: Selection,
    bandwidth: int | None,
    reread: bool,
    dry_run: bool,
    configs: tuple[Config, ...],
    human: bool,
    as_json: bool,
) -> int:
    """Copy LOG_DIRS, or of the topics only each TOPIC, to a new point in time in the backup DEST, a
    directory that is created if it is missing, or a URL of an object store: s3, gs, abfs or memory.
    LOG_DIRS are only read, and may be those of a running broker. A point has every segment that is
    served, the active one up to its last whole batch, the checkpoints that match, the internal
    topics and the cluster's metadata, so that no group is ahead of its log.
    Whatever DEST has already is not copied again.

    The point becomes visible when it is complete and on the disk. If the command is interrupted,
    the next one uses what was copied. Two commands that write to one DEST exclude each other.

    All batches are checked. Damage is reported on stderr, with exit code 1, and copied as it is.
    """
    from kafkafs.storage import Backup, absolute_path, make_point

    from ..support.driver import perform

    request = Backup(absolute_path(dest), selection, bandwidth, reread, dry_run)
    rows = _Rows(human, as_json)
    code = perform(log_dirs, configs, request, make_point, rows.put)
    rows.finish(dry_run=dry_run)
    return code


class _Rows:
    """Shows the rows of a run."""

    def __init__(self, human: bool, as_json: bool) -> None:
        self._human, self._as_json = human, as_json
        self._partitions: list[BackedUpPartition] = []
        self._point: FinishedPoint | None = None

    def put(self, row: Any) -> None:
        from kafkafs.storage import BackedUpPartition

        if self._as_json:
            output.binary().write(output.json_line(row.as_json()))
        elif isinstance(row, BackedUpPartition):
            self._partitions.append(row)
        else:
            self._point = row

    def finish(self, *, dry_run: bool) -> None:
        if self._as_json or self._point is None:
            return
        output.table(self._table(), right=range(1, 7))
        output.binary().writelines(map(output.line, self._lines(self._point, dry_run)))

    def _table(self) -> Iterator[tuple[str, ...]]:
        yield "TOPIC", "PARTITION", "START", "END", "SEGMENTS", "SIZE", "NEW", "LOG DIR"
        for row in self._partitions:
            yield (
                output.shown(row.topic),
                str(row.partition),
                str(row.start_offset),
                str(row.end_offset),
                str(row.segments),
                output.size_text(row.size, self._human),
                output.size_text(row.new_bytes, self._human),
                output.shown(row.log_dir),
            )

    def _lines(self, point: FinishedPoint, dry_run: bool) -> Iterator[str]:
        size, stored = (output.size_text(n, self._human) for n in (point.size, point.stored))
        yield ""
        yield f"{point.files} files of {size} bytes, of which {stored} are new"
        if point.left_out:
            yield f"{point.left_out} files and directories are left out, as the manifest says"
        if not dry_run:
            yield f"{output.shown(point.manifest)}: the point in time {time_text(point.time_ms)}"
