"""`kafkafs cluster`: describes a cluster as its metadata log records it, and lists the changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from kafkafs.storage import printable

from ..params.arguments import log_dirs_argument
from ..params.configs import configs_option
from ..params.flags import json_option
from ..params.times import as_of_option
from ..support import failures, output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import ClusterChange

_LOG: Final = "log"
# What the rows of a subject are called, if not like the subject.
_NOUNS: Final = {
    "acls": "ACLs",
    "configs": "configs of topics, brokers or other resources",
    "users": "users with SCRAM credentials, and no delegation tokens",
}
_SUBJECTS: Final = (
    *("topics", "brokers", "configs", "quotas", "acls", "users", "features", "voters"),
)


def _complete(
    _ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(each) for each in (*_SUBJECTS, _LOG) if each.startswith(incomplete)]


@click.command(
    cls=Verb,
    short_help="Describe the cluster: topics, brokers, configs, ACLs, …, and its changes.",
    examples=[
        ("kafkafs cluster /data", "describe the cluster in numbers"),
        ("kafkafs cluster /data topics orders", "show the leader, replicas and ISR of a topic"),
        ("kafkafs cluster log /data | grep deleted", "find out when topics were deleted"),
        (
            "kafkafs cluster --at 2030-01-01T12:00 /data acls",
            "list the ACLs as they were at a time",
        ),
        (
            "kafkafs cluster --json /data brokers | jq 'select(.broker.fenced).node'",
            "find the brokers that were fenced",
        ),
    ],
)
@log_dirs_argument
@click.argument("subject", nargs=-1, metavar="[SUBJECT [NAME]...]", shell_complete=_complete)
@as_of_option
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show the state after the first N records of the metadata log.",
)
@configs_option
@json_option("JSON, one object per line; times are in ms since 1970")
def command(
    log_dirs: tuple[str, ...],
    subject: tuple[str, ...],
    at: int | None,
    offset: int | None,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Describe the cluster that LOG_DIRS belong to, as its metadata log and the snapshots beside it
    record it. SUBJECT is topics, brokers, configs, quotas, acls, users, features or voters; each
    NAME restricts it (of an ACL that of its principal, of a quota one like "user amber"). Without a
    SUBJECT, describe the cluster in numbers.

    The last changes in the log are often those of a shutdown: brokers are fenced, and partitions
    lose their leaders. `kafkafs cluster log` shows when that began; --offset or --at shows the
    state before it.

    `kafkafs cluster log LOG_DIRS` lists the changes since the oldest snapshot that the log
    continues, or since the beginning: when a topic was created or deleted, a leader elected, a
    config or an ACL changed, a broker fenced.

    With --at or --offset, show the state at an earlier time or offset, if the log and the snapshots
    reach back that far. If the log does not name the leader or the voters of its quorum, the file
    quorum-state beside it does, but only now: with --at or --offset they are unknown.

    Users are shown without their secrets, and passwords in configs are hidden.

    Damaged and unknown records are reported on stderr, with exit code 1, and the others are shown.
    """
    log_dirs, subject = _swapped(log_dirs, subject)
    if subject[:1] == (_LOG,):
        if subject[1:] or offset is not None:
            what = f"extra argument {subject[1]!r}" if subject[1:] else "--offset with log"
            raise click.UsageError(f"unexpected {what}")
        return _history(log_dirs, configs, at, as_json)
    return _state(log_dirs, configs, at, offset, subject, as_json)


def _swapped(
    log_dirs: tuple[str, ...], subject: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Accepts `log LOG_DIRS`, too, unless what follows is a subject of a directory called log."""
    if log_dirs != (_LOG,) or not subject or subject[0] in (*_SUBJECTS, _LOG):
        return log_dirs, subject
    from ..params.paths import split_paths

    first, *rest = subject
    ctx = click.get_current_context()
    return split_paths(ctx, ctx.command.params[0], first), (_LOG, *rest)


def _history(
    log_dirs: tuple[str, ...], configs: Sequence[Config], at: int | None, as_json: bool
) -> int:
    from kafkafs.storage import ListClusterChanges, list_cluster_changes

    from ..support.driver import perform

    def put(change: ClusterChange) -> None:
        output.binary().write(
            output.json_line(change.as_json()) if as_json else output.line(_change_line(change))
        )

    return perform(log_dirs, configs, ListClusterChanges(), list_cluster_changes, put, at=at)


def _change_line(change: ClusterChange) -> str:
    time = output.time_text(change.timestamp)
    return f"{change.offset:>8}  {time}  {printable(change.text)}"


def _state(
    log_dirs: tuple[str, ...],
    configs: Sequence[Config],
    at: int | None,
    offset: int | None,
    words: tuple[str, ...],
    as_json: bool,
) -> int:
    from kafkafs.storage import ClusterSubject, DescribeCluster, describe_cluster

    from ..support.driver import perform

    subject = ClusterSubject.SUMMARY
    if words:
        if words[0] not in _SUBJECTS:
            known = ", ".join(_SUBJECTS)
            raise click.BadParameter(f"{words[0]!r} is not one of {known}, {_LOG}")
        subject = ClusterSubject(words[0])
    rows: list[Any] = []
    request = DescribeCluster(subject, offset, words[1:])
    code = perform(log_dirs, configs, request, describe_cluster, rows.append, at=at)
    if as_json:
        output.json_rows(rows)
    elif rows:
        lines, right = _TABLES[subject]
        output.table(_shown(lines([row.as_json() for row in rows])), right)
    elif not code:
        failures.warn(_nothing(subject, is_current=at is None and offset is None))
    return code


def _nothing(subject: str, is_current: bool) -> str:
    """Returns why a table would be empty."""
    if subject != "voters":
        return f"the cluster {'has' if is_current else 'had'} no {_NOUNS.get(subject, subject)}"
    if is_current:
        return "neither the metadata log nor the file quorum-state beside it names the voters"
    return (
        "the metadata log does not name the voters of that time, and quorum-state, which is not"
        " read with --at or --offset, names only those of today"
    )


# -- tables ----------------------------------------------------------------------------------------

_Rows = Sequence[dict[str, Any]]
_Line = tuple[str, ...]


def _shown(lines: Iterable[_Line]) -> list[_Line]:
    """Escapes control characters, even in a pipe: a name with a line feed makes no line."""
    return [tuple(map(printable, line)) for line in lines]


def _list(values: Iterable[object]) -> str:
    return ",".join(map(str, values)) or "-"


def _default(name: str | None) -> str:
    return "(default)" if name is None else name


def _endpoints(found: _Rows) -> str:
    return _list(f"{each['listener']}://{_host(each['host'])}:{each['port']}" for each in found)


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _summary(rows: _Rows) -> Iterator[_Line]:
    row = rows[0]
    controller, version = row["controller"], row["metadataVersion"]
    yield "CLUSTER ID", row["clusterId"] or "unknown"
    yield "STATE", _position(row["offset"], row["timestamp"])
    yield "CONTROLLER", "unknown" if controller is None else f"node {controller}"
    yield "VOTERS", str(row["voters"] or "unknown")
    yield "BROKERS", _parts(row["brokers"], {"fenced": row["fencedBrokers"]})
    yield "TOPICS", str(row["topics"])
    without_leader, short = row["partitionsWithoutLeader"], row["underReplicatedPartitions"]
    yield (
        "PARTITIONS",
        _parts(row["partitions"], {"without a leader": without_leader, "under-replicated": short}),
    )
    yield (
        "CONFIGS",
        _counted(
            row["resourcesWithConfigs"],
            "resource has configs of its own",
            "resources (topics, brokers, groups or client metrics) have configs of their own",
        ),
    )
    entities = "entities (users, clients or IP addresses) have quotas"
    yield "QUOTAS", _counted(row["quotas"], "entity has quotas", entities)
    yield "ACLS", str(row["acls"])
    users = "users have SCRAM credentials"
    yield "USERS", _counted(row["users"], "user has SCRAM credentials", users)
    yield "DELEGATION TOKENS", str(row["delegationTokens"])
    yield "METADATA VERSION", "unknown" if version is None else str(version)


def _position(offset: int, timestamp: int) -> str:
    """Names the state after the metadata log's records below `offset`."""
    if offset <= 0:
        return "before the first record of the metadata log"
    return f"after offset {offset - 1} of the metadata log, {output.time_text(timestamp)}"


def _parts(count: int, parts: dict[str, int]) -> str:
    """Returns a count with how many of these are in each part, as in `3 (2 fenced)`."""
    texts = [f"{'all' if part == count > 1 else part} {name}" for name, part in parts.items()]
    return f"{count} ({', '.join(texts)})" if count else "0"


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}" if count else "0"


def _topics(rows: _Rows) -> Iterator[_Line]:
    yield (
        *("TOPIC", "PARTITION", "LEADER", "LEADER EPOCH", "REPLICAS", "ISR", "ELR", "TOPIC ID"),
        "CHANGING",
    )
    for row in rows:
        for each in row["partitions"]:
            changing = [f"adding {_list(each['addingReplicas'])}"] * bool(each["addingReplicas"])
            changing += [f"removing {_list(each['removingReplicas'])}"] * bool(
                each["removingReplicas"]
            )
            changing += ["recovering"] * each["leaderRecovering"]
            yield (
                row["topic"],
                str(each["partition"]),
                "none" if each["leader"] is None else str(each["leader"]),
                str(each["leaderEpoch"]),
                _list(each["replicas"]),
                _list(each["isr"]),
                _list(each["elr"]),
                row["topicId"],
                ", ".join(changing) or "-",
            )
        if not row["partitions"]:
            yield (row["topic"], *["-"] * 6, row["topicId"], "-")


def _brokers(rows: _Rows) -> Iterator[_Line]:
    yield "NODE", "ROLE", "STATE", "RACK", "ENDPOINTS", "LOG DIR IDS"
    for row in rows:
        broker, controller = row["broker"], row["controller"]
        if broker is not None:
            state = ["fenced" if broker["fenced"] else "active"]
            state += ["in controlled shutdown"] * broker["inControlledShutdown"]
            yield (
                str(row["node"]),
                "broker",
                ", ".join(state),
                broker["rack"] or "-",
                _endpoints(broker["endpoints"]),
                _list(broker["logDirs"]),
            )
        if controller is not None:
            endpoints = _endpoints(controller["endpoints"])
            yield str(row["node"]), "controller", "-", "-", endpoints, "-"


def _configs(rows: _Rows) -> Iterator[_Line]:
    yield "RESOURCE", "NAME", "CONFIG", "VALUE"
    for row in rows:
        for name, value in row["configs"].items():
            yield row["resourceType"], _default(row["resourceName"]), name, value


def _quotas(rows: _Rows) -> Iterator[_Line]:
    yield "ENTITY", "QUOTA", "VALUE"
    for row in rows:
        entity = ", ".join(f"{kind} {_default(name)}" for kind, name in row["entity"].items())
        for name, value in row["quotas"].items():
            yield entity, name, str(value).removesuffix(".0")


def _acls(rows: _Rows) -> Iterator[_Line]:
    yield "RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"
    for row in rows:
        yield (
            row["resourceType"],
            row["resourceName"],
            row["patternType"],
            row["principal"],
            row["host"],
            row["operation"],
            row["permission"],
        )


def _users(rows: _Rows) -> Iterator[_Line]:
    yield "USER", "CREDENTIAL", "DETAILS"
    for row in rows:
        for each in row.get("credentials", ()):
            yield row["user"], each["mechanism"], f"{each['iterations']} iterations"
        if "tokenId" in row:
            until = output.time_text(row["expirationTimestamp"])
            yield row["owner"], "delegation token", f"id {row['tokenId']}, expires {until}"


def _features(rows: _Rows) -> Iterator[_Line]:
    yield "FEATURE", "LEVEL", "SUPPORTED BY ALL NODES"
    for row in rows:
        supported = row["supported"]
        text = "-" if supported is None else f"{supported[0]} to {supported[1]}"
        yield row["feature"], str(row["level"]), text


def _voters(rows: _Rows) -> Iterator[_Line]:
    yield "VOTER", "LEADER", "LEADER EPOCH", "DIRECTORY ID", "ENDPOINTS"
    for row in rows:
        epoch = row["leaderEpoch"]
        yield (
            str(row["voter"]),
            "unknown" if epoch < 0 else "yes" if row["isLeader"] else "no",
            "-" if epoch < 0 else str(epoch),
            row["directoryId"] or "-",
            _endpoints(row["endpoints"]),
        )


# By subject: the table of the rows' JSON, and the columns to align on the right.
_TABLES: Final[dict[str, tuple[Callable[[_Rows], Iterator[_Line]], Sequence[int]]]] = {
    "summary": (_summary, ()),
    "topics": (_topics, (1, 2, 3)),
    "brokers": (_brokers, (0,)),
    "configs": (_configs, ()),
    "quotas": (_quotas, (2,)),
    "acls": (_acls, ()),
    "users": (_users, ()),
    "features": (_features, (1,)),
    "voters": (_voters, (0, 2)),
}
