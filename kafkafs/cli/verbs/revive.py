"""`kafkafs revive`: makes a directory on which a new single-node Kafka starts."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from ..params.arguments import log_dirs_argument, selection_argument
from ..params.configs import configs_option, tier_options
from ..params.flags import dry_run_option, human_option, json_option
from ..params.paths import LocalPath
from ..params.times import parse_time
from ..support import failures, output
from ..support.verb import Verb
from ..support.words import Config
from .revive_in_place import refuse_with_in_place, revive_in_place

if TYPE_CHECKING:
    from kafkafs.storage import RevivedPartition, RevivedTransaction, Selection

_LISTENER: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^:\[\]\s,/]+)):([0-9]{1,5})")
_MAX_PORT: Final = (1 << 16) - 1
_ANY_ADDRESS: Final = ("0.0.0.0", "::", "0:0:0:0:0:0:0:0")


def _listener(_ctx: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, int]:
    """Parses HOST:PORT, with brackets around an IPv6 address."""
    match = _LISTENER.fullmatch(value)
    if match is None or not 0 < int(match[3]) <= _MAX_PORT:
        raise click.BadParameter(f"{value!r} is not HOST:PORT")
    host = match[1] or match[2]
    if host in _ANY_ADDRESS:
        raise click.BadParameter(f"{host} is no address that clients can connect to")
    return host, int(match[3])


@click.command(
    cls=Verb,
    short_help="Make a directory on which a new Kafka starts with the same topics and groups.",
    examples=[
        ("kafkafs revive /data -o /new", "revive a whole broker, then start Kafka as printed"),
        ("kafkafs revive --dry-run /data -o /new", "show what it would have"),
        ("kafkafs revive /b1,/b2,/b3 -o /new", "revive a cluster of three brokers as one node"),
        ("kafkafs revive --salvage /damaged -o /new orders", "revive a topic with damaged logs"),
        (
            "kafkafs revive --until 2030-01-01T12:00 /data -o /new",
            "go back to the state at a time",
        ),
        (
            "kafkafs revive --in-place /data orders",
            "make the stopped node of /data know the topic orders, restored from a backup",
        ),
    ],
)
@log_dirs_argument
@selection_argument
@click.option(
    "-o",
    "--output",
    "new",
    metavar="NEW",
    type=LocalPath(),
    help="Create the directory NEW, which must not exist yet, or be empty.",
)
@click.option(
    "--in-place",
    is_flag=True,
    help="Instead, register topics that are in LOG_DIRS in the metadata log there.",
)
@click.option(
    "--until",
    metavar="TIME",
    callback=parse_time,
    help="Revive the state at TIME (ms since 1970 or ISO 8601).",
)
@click.option(
    "--listener",
    metavar="HOST:PORT",
    default="localhost:9092",
    show_default=True,
    callback=_listener,
    help="Where the new node listens; its controller listens on the next port.",
)
@click.option(
    "--node-id",
    type=click.IntRange(min=0, max=(1 << 31) - 1),
    metavar="N",
    help="The id of the new node, by default that of the old one.",
)
@click.option(
    "--kafka-version",
    metavar="V",
    help="The Kafka to start: 3.9 or 4.3. By default the first of them that is not older than"
    " LOG_DIRS.",
)
@click.option("--abort-open", is_flag=True, help="Abort the transactions that are open.")
@click.option(
    "--link",
    is_flag=True,
    help="Make sealed segments hard links, where LOG_DIRS were closed cleanly.",
)
@click.option("--salvage", is_flag=True, help="Take all intact batches of damaged logs.")
@dry_run_option
@configs_option
@tier_options
@human_option
@json_option("one JSON object per partition, open transaction and note, then one for the node")
def command(
    log_dirs: tuple[str, ...],
    selection: Selection,
    new: str | None,
    in_place: bool,
    until: int | None,
    listener: tuple[str, int],
    node_id: int | None,
    kafka_version: str | None,
    abort_open: bool,
    link: bool,
    salvage: bool,
    dry_run: bool,
    configs: tuple[Config, ...],
    human: bool,
    as_json: bool,
) -> int:
    """Make a directory on which a new single-node Kafka (KRaft) starts as if nothing had happened
    to the cluster that LOG_DIRS are from: with the same topics, ids, configs, records and offsets,
    groups and their offsets, transactions, quotas, ACLs and users. Write NEW/server.properties and
    NEW/data, and print the command that starts Kafka.

    LOG_DIRS are only read. They may be those of one broker or of several, of a broker that crashed
    (its logs are recovered in NEW), from before KRaft, or kafkafs's own. No process may be writing
    to them. Replicas and directories that contradict each other are refused, unless
    -c kafkafs.prefer.dir=DIRECTORY says which one counts.

    With topics or partitions, revive only these, and Kafka's internal topics.

    NEW is marked as unfinished until it is complete. If the command was interrupted, the same
    command starts again.

    With --in-place, make nothing new: the node that LOG_DIRS are from starts again, and only lacks
    topics whose partitions are there, because they were restored from a backup or made by kafkafs.
    A KRaft broker would rename them to -stray. Register them in its metadata log, with their ids,
    offsets and records, and the configs that `kafkafs topic config` has stored. Named topics may
    be ones that were deleted, or are stray already; without names, all others are registered.

    That is possible only if the node is stopped and is a broker that is also the only voter of its
    metadata quorum, which it then leads for one epoch as it would if it started. Otherwise other
    controllers decide what the log holds, and the command is refused; so it is for a node that has
    never run, a damaged metadata log, and a Kafka newer than 4.3.

    What is lost, or differs from the old cluster, is reported on stderr; the exit code is 1 if
    records are missing.
    """
    if in_place:
        refuse_with_in_place()
        return revive_in_place(
            log_dirs, selection, configs, dry_run=dry_run, human=human, as_json=as_json
        )
    if new is None:
        raise click.UsageError("Missing option '-o' / '--output', or --in-place.")
    from kafkafs.storage import Revive, revive

    from ..support.driver import perform

    path = os.path.abspath(new)
    request = Revive(
        path, selection, listener, node_id, kafka_version, abort_open, link, salvage, dry_run
    )
    rows = _Rows(human, as_json)
    code = perform(log_dirs, configs, request, revive, rows.put, at=until)
    rows.finish(dry_run=dry_run)
    return code


class _Rows:
    """Shows the rows of a run."""

    def __init__(self, human: bool, as_json: bool) -> None:
        self._human, self._as_json = human, as_json
        self._partitions: list[RevivedPartition] = []
        self._transactions: list[RevivedTransaction] = []
        self._node: Any = None

    def put(self, row: Any) -> None:
        from kafkafs.storage import RevivedNode, RevivedPartition, RevivedTransaction

        if self._as_json:
            output.binary().write(output.json_line(row.as_json()))
        elif isinstance(row, RevivedPartition):
            self._partitions.append(row)
        elif isinstance(row, RevivedTransaction):
            self._transactions.append(row)
        elif isinstance(row, RevivedNode):
            self._node = row
        else:
            failures.warn(row.note)

    def finish(self, *, dry_run: bool) -> None:
        if self._as_json or self._node is None:
            return
        output.table(self._partition_rows(), right=range(1, 5))
        if self._transactions:
            output.binary().write(b"\n")
            output.table(_transaction_rows(self._transactions), right=range(1, 4))
        output.binary().writelines(map(output.line, self._node_lines(dry_run)))

    def _partition_rows(self) -> Iterator[Sequence[str]]:
        yield "TOPIC", "PARTITION", "START", "END", "BYTES", "FROM"
        for row in self._partitions:
            yield (
                output.shown(row.topic),
                str(row.partition),
                str(row.start_offset),
                str(row.end_offset),
                output.size_text(row.size, self._human),
                output.shown(",".join(row.sources)) or "-",
            )

    def _node_lines(self, dry_run: bool) -> Iterator[str]:
        node = self._node
        yield ""
        yield (
            f"node {node.node_id} of cluster {output.shown(node.cluster_id)}, for Kafka"
            f" {node.kafka_version}: {node.topics} topics, {node.partitions} partitions"
        )
        if not dry_run:
            yield "Start it with:"
            yield f"  kafka-server-start.sh {shlex.quote(node.properties)}"


def _transaction_rows(found: Iterable[RevivedTransaction]) -> Iterator[Sequence[str]]:
    yield "TOPIC", "PARTITION", "PRODUCER ID", "FIRST OFFSET", "TRANSACTIONAL ID", "OUTCOME"
    for row in found:
        yield (
            output.shown(row.topic),
            str(row.partition),
            str(row.transaction.producer_id),
            str(row.transaction.first_offset),
            "-" if row.transactional_id is None else output.shown(row.transactional_id),
            row.outcome,
        )
