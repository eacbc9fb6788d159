"""Streams groups (KIP-1071) as a broker of Kafka 4.3 described them at six moments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.groups.coordinator import ModernGroup
from kafkafs.storage.groups.groups import GroupsReader
from kafkafs.storage.groups.internal_topic import OFFSETS_TOPIC, read_coordinator
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.groups import (
    GroupMember,
    GroupOffset,
    ListGroups,
    ListMembers,
    list_groups,
    list_members,
)
from tests import answers

Corpus = Callable[[str], Path]
NAME = "streams43"
OFFSET_FIELDS = ("offset", "leaderEpoch", "metadata", "logEndOffset")
MEMBER_FIELDS = ("clientId", "host", "instanceId", "rack", "assignment")


def answered() -> list[dict[str, Any]]:
    """Returns the Admin API's answers, oldest first."""
    found = json.loads((answers.directory(NAME) / "groups.json").read_text(encoding="utf-8"))
    assert isinstance(found, list)
    return found


def described(engine: Engine) -> dict[str, dict[str, Any]]:
    """Returns what kafkafs says, in the form of the answers."""
    coordinator = read_coordinator(engine.log(OFFSETS_TOPIC, 0).view())
    groups: dict[str, dict[str, Any]] = {}
    for name, group in GroupsReader(engine).image().groups.items():
        recorded = coordinator.replay.groups[name]
        assert isinstance(recorded, ModernGroup)
        assert recorded.topology is not None
        groups[name] = {
            "type": str(group.type),
            "protocolType": group.protocol_type,
            "listedState": str(group.state),
            "epoch": group.epoch,
            "topologyEpoch": recorded.topology["epoch"],
            "members": {},
            "offsets": {},
        }
    for row in list_groups(engine, ListGroups()):
        assert isinstance(row, GroupOffset)
        found = row.as_json()
        groups[row.group.name]["state"] = found["state"]
        if row.topic is not None:
            offset = {field: found[field] for field in OFFSET_FIELDS}
            groups[row.group.name]["offsets"][f"{row.topic}-{row.partition}"] = offset
    for member in list_members(engine, ListMembers()):
        assert isinstance(member, GroupMember)
        found = member.as_json()
        groups[member.group.name]["members"][found["memberId"]] = {
            field: found[field] for field in MEMBER_FIELDS
        }
    return groups


def differences(ours: Any, kafkas: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yields what is not equal: where, as names joined by dots, and both values; None if there is
    none."""
    if isinstance(ours, dict) and isinstance(kafkas, dict) and (ours or kafkas):
        for name in sorted(ours.keys() | kafkas.keys()):
            yield from differences(ours.get(name), kafkas.get(name), f"{where}.{name}".strip("."))
    elif ours != kafkas:
        yield where, ours, kafkas


def test_the_answers_cover_the_states_and_tasks_of_streams_groups() -> None:
    groups = [group for moment in answered() for group in moment["groups"].values()]
    members = [member for group in groups for member in group["members"].values()]
    tasks = {task for member in members for task in member["assignment"]}
    assert {group["state"] for group in groups} == {"Stable", "Empty", "NotReady", "Reconciling"}
    assert {task.split("_")[0] for task in tasks} == {"active 0", "active 1", "standby 1"}


@pytest.mark.parametrize("moment", range(6))
def test_groups_and_members_at_each_moment(moment: int, corpus: Corpus) -> None:
    expected = answered()[moment]
    engine = Engine(str(corpus(NAME)), at_ms=expected["at"])
    assert list(differences(described(engine), expected["groups"])) == []


def test_the_directory_as_it_was_left(corpus: Corpus) -> None:
    engine = Engine(str(corpus(NAME)))
    assert list(differences(described(engine), answered()[-1]["groups"])) == []
    assert GroupsReader(engine).image().failed == []
    lags = {
        (row.topic, row.partition): (row.lag, row.problem)
        for row in list_groups(engine, ListGroups(("copies",)))
        if isinstance(row, GroupOffset)
    }
    assert lags == {("orders", 0): (4, None), ("orders", 1): (3, None)}
