"""The groups of `LogDirectories.groups`: how far they have read, and their members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafkafs.storage import (
    DescribedMember,
    Engine,
    GroupLags,
    GroupOffset,
    GroupsReader,
    PartitionFailed,
    fresh,
)

#: Called with each error in the topics that record the groups, and in the partitions they read.
OnDamage = Callable[[Exception], None]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group. `type`: "Classic", "Consumer", "Share" or "Streams"; `state`: as Kafka's, "Empty" or
    "Stable" for instance; `epoch`: its epoch or generation. `offsets` are sorted by topic and
    partition, `members` by when they joined."""

    name: str
    type: str
    state: str
    protocol_type: str
    epoch: int
    members: tuple[DescribedMember, ...]
    offsets: tuple[GroupOffset, ...]


def describe_groups(
    engine: Engine, names: tuple[str, ...], on_damage: OnDamage | None
) -> dict[str, GroupDescription]:
    """Does the work of `LogDirectories.groups`. Raises UnknownGroup, and without `on_damage` the
    first error."""
    image = GroupsReader(engine).image()
    groups = [image.group(name) for name in names or image.groups]
    for _, error in image.failed:
        _report(error, on_damage)
    lags, found = GroupLags(engine), {}
    for group in groups:
        offsets = []
        for row in lags.rows(group, image.offsets(group)):
            if isinstance(row, PartitionFailed):
                assert row.cause is not None
                _report(row.cause, on_damage)
            elif row.topic is not None:
                offsets.append(row)
        found[group.name] = GroupDescription(
            group.name,
            str(group.type),
            str(group.state),
            group.protocol_type,
            group.epoch,
            tuple(image.members(group)),
            tuple(offsets),
        )
    return found


def _report(error: Exception, on_damage: OnDamage | None) -> None:
    if on_damage is None:
        raise fresh(error)
    on_damage(error)
