"""Tests of `groups`: how far groups have read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkafs
from tests.building import BatchFields, build_batch
from tests.group_records import commit, commit_key
from tests.storage.test_groups import answered

Corpus = Callable[[str], Path]


def test_groups_are_those_of_the_broker(corpus: Corpus) -> None:
    with kafkafs.open(corpus("groups43")) as d:
        found = d.groups()
    rows = answered("groups.jsonl")
    assert list(found) == list(dict.fromkeys(row["group"] for row in rows))
    offsets = [
        (group.name, group.type, group.state, each.topic, each.partition, each.offset, each.lag)
        for group in found.values()
        for each in group.offsets
    ]
    fields = ("group", "type", "state", "topic", "partition", "offset", "lag")
    assert offsets == [tuple(row[field] for field in fields) for row in rows]
    (member,) = found["billing-share"].members
    assert member.assignment == ("main-0", "main-1", "main-2", "trim-0", "trim-1")


def test_groups_at_a_time(corpus: Corpus) -> None:
    at = 1795474350409
    with kafkafs.open(corpus("groups43")) as d:
        (group,) = d.groups("billing-walker", at=at).values()
    with kafkafs.open(corpus("groups43"), at=at) as d:
        assert d.groups("billing-walker") == {"billing-walker": group}
        with pytest.raises(kafkafs.UnknownGroup, match="no group walker at 2026-11-23T22:52:30"):
            d.groups("walker")
    assert [each.metadata for each in group.offsets] == [
        row["metadata"]
        for row in answered("groups-at.jsonl")
        if row["at"] == at and row["group"] == "billing-walker"
    ]


def test_damage_is_raised_or_reported(tmp_path: Path, corpus: Corpus) -> None:
    log_dir = shutil.copytree(corpus("groups43"), tmp_path / "data")
    bad = commit("late", "main", 0, 3)
    bad = type(bad)(0, commit_key("late", "main", 0)[:-1], bad.value)
    with (log_dir / "__consumer_offsets-0" / "00000000000000000000.log").open("ab") as log:
        log.write(build_batch([bad, commit("late", "main", 1, 3)], BatchFields(base_offset=24)))
    with kafkafs.open(log_dir) as d:
        with pytest.raises(kafkafs.CorruptError, match="offset 24: an int32 extends past"):
            d.groups()
        errors: list[Exception] = []
        (group,) = d.groups("late", on_damage=errors.append).values()
    assert [(each.topic, each.partition) for each in group.offsets] == [("main", 1)]
    assert len(errors) == 1
