"""`kafkafs groups`: shows how far consumer groups have read, and their members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import click

from ..params.arguments import groups_argument, log_dirs_argument
from ..params.configs import configs_option
from ..params.flags import json_option
from ..params.times import as_of_option
from ..support import failures, output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import (
        Engine,
        GroupMember,
        GroupOffset,
        ListGroups,
        ListMembers,
        PartitionFailed,
        ProgressListener,
        Row,
    )

_HEADS: Final = (
    *("GROUP", "TYPE", "STATE", "TOPIC", "PARTITION", "OFFSET", "LOG START", "LOG END", "LAG"),
    *("BEHIND", "COMMITTED", "PROBLEM"),
)
_MEMBER_HEADS: Final = (
    *("GROUP", "STATE", "MEMBER", "INSTANCE", "CLIENT", "HOST", "RACK"),
    *("ASSIGNOR", "ASSIGNMENT"),
)
# Milliseconds of each unit, the largest first.
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


@click.command(
    cls=Verb,
    short_help="Show how far consumer groups have read, and how far behind they are.",
    examples=[
        ("kafkafs groups /data", "show all groups like `kafka-consumer-groups --describe`"),
        ("kafkafs groups --at 2026-09-03T12:00 /data billing", "show how far one had read at noon"),
        ("kafkafs groups --members /data billing", "show its members and their partitions"),
        (
            "kafkafs groups -c offsets.retention.minutes=10080 /data",
            "also show which offsets a broker would remove as too old",
        ),
        (
            "kafkafs groups --json /data | jq 'select(.problem != null)'",
            "find committed offsets that no longer exist",
        ),
    ],
)
@log_dirs_argument
@groups_argument
@click.option("--members", is_flag=True, help="Show the members and what they are assigned.")
@as_of_option
@configs_option
@json_option("one JSON object per row, one per line; times are in ms since 1970")
def command(
    log_dirs: tuple[str, ...],
    groups: tuple[str, ...],
    members: bool,
    at: int | None,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Show for each GROUP, or for all, how far it has read each partition: the committed offset,
    start and end of the log, the lag in records, the age of the oldest record that it has not read,
    when it committed, and why it cannot continue there: the offset was deleted or is beyond the
    end, or the topic was deleted or recreated. All kinds of groups are shown: classic, consumer,
    share and streams groups.

    They are read from __consumer_offsets and __share_group_state as a broker would read them,
    except that nothing expires: with -c offsets.retention.minutes=N, which a broker has in its own
    configs (10080 by default), PROBLEM says which offsets it would remove once it runs. Damaged and
    unknown records there are reported on stderr, with exit code 1.
    """
    from kafkafs.storage import ListGroups, ListMembers

    from ..support.driver import perform

    if members:
        found_members: list[GroupMember] = []
        put = _put_json if as_json else found_members.append
        code = perform(log_dirs, configs, ListMembers(groups), _members, put, at=at)
        if found_members:
            output.table(_member_rows(found_members))
        elif not (code or as_json):
            failures.warn(f"{'none of these groups' if groups else 'no group'} has members")
        return code
    found: list[GroupOffset] = []
    put_offset = _put_json if as_json else found.append
    code = perform(log_dirs, configs, ListGroups(groups), _offsets, put_offset, at=at)
    if found:
        output.table(_rows(found), right=range(4, 10))
    elif not (code or as_json):
        then = "" if at is None else f" as of {output.time_text(at)}"
        failures.warn(f"no groups are recorded in these directories{then}")
    return code


def _offsets(
    engine: Engine, request: ListGroups, progress: ProgressListener | None = None
) -> Iterator[GroupOffset | PartitionFailed]:
    from kafkafs.storage import SILENT, list_groups

    yield from list_groups(engine, request, progress or SILENT)
    _warn_of_missing(engine)


def _members(
    engine: Engine, request: ListMembers, progress: ProgressListener | None = None
) -> Iterator[GroupMember | PartitionFailed]:
    from kafkafs.storage import SILENT, list_members

    yield from list_members(engine, request, progress or SILENT)
    _warn_of_missing(engine)


def _warn_of_missing(engine: Engine) -> None:
    from kafkafs.storage import missing_coordinators, ranges

    missing = missing_coordinators(engine)
    if missing:
        failures.warn(
            f"groups in __consumer_offsets partitions {ranges(missing)} are not shown: these are"
            " not in the directories; add those of the other brokers"
        )


def _put_json(row: Row) -> None:
    """Writes a row at once: there may be millions."""
    output.json_rows((row,))


def _rows(found: Iterable[GroupOffset]) -> Iterator[tuple[str, ...]]:
    yield _HEADS
    for each in found:
        numbers = each.partition, each.offset, each.log_start_offset, each.log_end_offset, each.lag
        yield (
            _text(each.group.name),
            each.group.type,
            each.group.state,
            _text(each.topic),
            *("-" if number is None else str(number) for number in numbers),
            "-" if each.lag_ms is None else duration_text(each.lag_ms),
            "-" if each.commit_timestamp is None else output.time_text(each.commit_timestamp),
            each.problem or "-",
        )


def _member_rows(found: Iterable[GroupMember]) -> Iterator[tuple[str, ...]]:
    yield _MEMBER_HEADS
    for each in found:
        member = each.member
        texts = (
            *(each.group.name, each.group.state, member.member_id, member.instance_id),
            *(member.client_id, member.host, member.rack, member.assignor),
            ",".join(member.assignment),
        )
        yield tuple(map(_text, texts))


def _text(text: str | None) -> str:
    """Returns a cell. Even in a pipe it is on one line: clients choose these names."""
    from kafkafs.storage import printable

    return printable(text) if text else "-"


def duration_text(milliseconds: int) -> str:
    """Formats a duration with its two largest units, as in `3d 4h`."""
    if milliseconds < 0:
        return f"-{duration_text(-milliseconds)}"
    for (unit, size), (small, small_size) in pairwise(_UNITS):
        if milliseconds >= size:
            return f"{milliseconds // size}{unit} {milliseconds % size // small_size}{small}"
    return f"{milliseconds / 1000:.3g}s"
