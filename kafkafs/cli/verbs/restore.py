"""`kafkafs restore`: writes topics of log directories into a running cluster."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final

import click

from kafkafs.places import log_dir_around
from kafkafs.storage import CorruptError, is_url, printable

from .. import installation
from ..params.arguments import log_dirs_argument, topics_argument
from ..params.configs import configs_option, tier_options
from ..params.flags import dry_run_option, json_option
from ..params.paths import LocalPath
from ..params.times import from_until_options
from ..support import failures, output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.restore.cluster import TargetCluster
    from kafkafs.restore.groups import TranslatedOffset
    from kafkafs.restore.planning import RestoreRequest
    from kafkafs.restore.restoring import Restore, RestoredRow

_HEADINGS: Final = ("TOPIC", "PARTITION", "NEW TOPIC", "RECORDS", "OFFSETS", "NEW OFFSETS")
_DRY_HEADINGS: Final = ("TOPIC", "PARTITION", "NEW TOPIC", "RECORDS", "BYTES", "OFFSETS")
_GROUP_HEADINGS: Final = ("GROUP", "TOPIC", "PARTITION", "NEW TOPIC", "OFFSET", "NEW OFFSET")


@click.command(
    cls=Verb,
    short_help="Write topics into a running cluster.",
    examples=[
        (
            "kafkafs restore --dry-run /backup --to localhost:9092",
            "print records, bytes and obstacles of all topics",
        ),
        (
            "kafkafs restore /backup --to localhost:9092 orders --groups",
            "restore a topic, and how far groups have read it; repeat it if it was interrupted",
        ),
        (
            "kafkafs restore /backup --to localhost:9092 orders --rename orders=orders-2026"
            " --from 2026-01-01",
            "restore a part of a topic under another name",
        ),
    ],
)
@log_dirs_argument
@topics_argument(required=False)
@click.option(
    "--to", "bootstrap", metavar="HOST:PORT", required=True, help="A broker of the cluster."
)
@click.option(
    "--rename",
    "renames",
    metavar="A=B",
    multiple=True,
    callback=lambda ctx, parameter, values: _split_renames(values),
    help="Restore the topic A as B; repeatable.",
)
@from_until_options
@click.option("--groups", is_flag=True, help="Commit the translated offsets of groups, too.")
@click.option(
    "--command-config",
    "client_file",
    type=LocalPath(exists=True, dir_okay=False),
    metavar="FILE",
    help="Configs of librdkafka, a line NAME=VALUE each: security, compression, …",
)
@click.option(
    "--state",
    "state_path",
    type=LocalPath(dir_okay=False),
    metavar="FILE",
    help="The file to continue from  [default: one below $XDG_STATE_HOME/kafkafs]",
)
@dry_run_option
@configs_option
@tier_options
@json_option("one JSON object per partition, group offset or obstacle")
def command(
    log_dirs: tuple[str, ...],
    topics: tuple[str, ...],
    bootstrap: str,
    renames: dict[str, str],
    since_ms: int | None,
    until_ms: int | None,
    groups: bool,
    client_file: str | None,
    state_path: str | None,
    dry_run: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Write the records of each TOPIC, or of all but Kafka's own, into the cluster of the broker
    HOST:PORT: to the same partitions, in order, with key, value, headers and timestamp. Topics that
    the cluster does not have are created with their partitions and configs. Only committed records
    are restored. LOG_DIRS are only read; a broker may be running on them.

    Stopped at any moment and started again, the command continues without a duplicate or a gap: the
    state file says which records the cluster has acknowledged. Beside it, FILE.offsets lists old
    and new offsets. A topic of the cluster that is not empty is refused unless the state file says
    that this restore has written it.
    """
    from ..support.driver import progress_bars
    from ..support.opening import open_engine

    with installation.needed_by("restore", "restore"):
        from kafkafs.restore.cluster import TargetCluster
        from kafkafs.restore.planning import RestoreRequest
        from kafkafs.restore.restoring import Restore

    around = None if state_path is None else log_dir_around(state_path, log_dirs)
    if around is not None:
        raise click.UsageError(f"{state_path} is in the log directory {printable(around)}")
    request = RestoreRequest(topics, renames, since_ms, until_ms)
    with closing(open_engine(log_dirs, configs)) as engine:
        request.selected(engine)  # fails before the cluster is asked
        cluster = TargetCluster(bootstrap, _client_configs(client_file))
        path = state_path or _state_path(cluster, log_dirs, request)
        with progress_bars() as progress:
            restore = Restore(engine, cluster, request, progress, failures.warn)
            if dry_run:
                code = _count(restore, path, as_json)
            else:
                code = _run(restore, path, groups, as_json)
        for each in restore.damage.values():
            failures.warn(f"not restored: {each}")
        failures.warn_of_unserved(engine)
        return failures.report_configs(engine) or code or int(bool(restore.damage))


def _count(restore: Restore, path: str, as_json: bool) -> int:
    from kafkafs.restore.planning import Obstacle
    from kafkafs.restore.state import read_state

    state = read_state(path)
    plans = restore.plans(state)
    found = list(restore.obstacles(plans, state))
    rows: list[RestoredRow] = []
    for each in restore.count(plans):
        if isinstance(each, Obstacle):
            found.append(each)
        else:
            rows.append(each)
    if as_json:
        output.json_rows(rows)
        output.json_rows(found)
    else:
        lines = [
            (*_start(row), str(row.records), str(row.size), _range(row.first, row.last))
            for row in rows
        ]
        output.table([_DRY_HEADINGS, *lines], right=(1, 3, 4))
        output.binary().writelines(
            output.line(f"obstacle: {printable(str(each))}") for each in found
        )
    return int(any(each.refuses for each in found))


def _run(restore: Restore, path: str, groups: bool, as_json: bool) -> int:
    from kafkafs.restore.groups import restore_groups
    from kafkafs.restore.state import RestoreState, RestoreStateFile

    with closing(RestoreStateFile(path)) as file:
        state = file.read()
        plans = restore.plans(state)
        found = [*restore.obstacles(plans, state), *restore.foreseen(plans, state)]
        refused = [each for each in found if each.refuses]
        for obstacle in refused or found:
            failures.warn(str(obstacle))
        if refused:
            return 1
        state = state or RestoreState(restore.cluster.cluster_id)
        rows = list(_printed(restore.run(plans, file, state), as_json))
        if not as_json:
            lines = [
                (*_start(row), str(row.records), _range(row.first, row.last), _new_range(row))
                for row in rows
            ]
            output.table([_HEADINGS, *lines], right=(1, 3))
        if groups:
            offsets = restore_groups(restore.engine, restore.cluster, file, state, failures.warn)
            _show_offsets(list(offsets), as_json)
        if not as_json:
            failures.warn(f"old and new offsets are in {file.table_path}")
    return 0


def _printed(rows: Iterator[RestoredRow], as_json: bool) -> Iterator[RestoredRow]:
    for row in rows:
        if as_json:
            output.json_rows([row])
        yield row


def _show_offsets(rows: list[TranslatedOffset], as_json: bool) -> None:
    if as_json:
        output.json_rows(rows)
        return
    lines = [
        (
            output.shown(row.group),
            row.topic,
            str(row.partition),
            row.target,
            str(row.offset),
            str(row.new_offset),
        )
        for row in rows
    ]
    output.table([_GROUP_HEADINGS, *lines], right=(2, 4, 5))


def _start(row: RestoredRow) -> tuple[str, str, str]:
    return row.topic, str(row.partition), row.target


def _range(first: int, last: int) -> str:
    return "-" if last < first or first < 0 else f"{first} to {last}"


def _new_range(row: RestoredRow) -> str:
    return _range(row.new_first, row.new_first + row.records - 1)


def _split_renames(values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, equals, target = value.partition("=")
        if not (name and equals and target):
            raise click.BadParameter(f"{value!r} is not A=B")
        if name in found:
            raise click.BadParameter(f"{name} is renamed twice")
        found[name] = target
    return found


def _client_configs(path: str | None) -> dict[str, str]:
    """Returns the configs in a file."""
    from kafkafs.storage import iter_properties

    if path is None:
        return {}
    with open(path, "rb") as file:
        data = file.read()
    try:
        return {each.key: each.value for each in iter_properties(data)}
    except CorruptError as error:
        raise failures.Failure(f"{path}: {error}") from None


def _state_path(cluster: TargetCluster, log_dirs: tuple[str, ...], request: RestoreRequest) -> str:
    """Returns the state file of a command line: another command has another one."""
    above = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    of = (
        cluster.cluster_id,
        sorted(path if is_url(path) else os.path.realpath(path) for path in log_dirs),
        sorted(request.topics),
        sorted((request.renames or {}).items()),
        request.since_ms,
        request.until_ms,
    )
    name = hashlib.sha256(repr(of).encode()).hexdigest()[:16]
    return os.path.join(above, "kafkafs", f"restore-{name}.json")
