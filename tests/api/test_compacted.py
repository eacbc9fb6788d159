"""Tests of `Partition.compacted`: the records compaction would retain, and its summary."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

import kafkafs
from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.records.columns import Damage
from tests.mounted.live import LiveLog

Corpus = Callable[[str], Path]
#: When a broker had finished compacting `compact-before` into `compact-after`.
CLEANED = datetime.fromtimestamp(1795248995.048, UTC)


@pytest.mark.parametrize("topic", ["cmp-lag", "cmp-delete", "cmp-txn", "cmp-zstd"])
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_as_a_broker_left_them(corpus: Corpus, topic: str, isolation: str) -> None:
    """The last records of cmp-delete have a later timestamp."""
    before = kafkafs.open(corpus("compact-before"), at=CLEANED)[topic, 0]
    after = kafkafs.open(corpus("compact-after"), at=CLEANED)[topic, 0]
    found = kafkafs.open(corpus("compact-before"))[topic, 0].compacted(at=CLEANED)
    assert before.compacted().summary == found.summary
    expected = after.scan(isolation=isolation).read_all()
    assert found.scan(isolation=isolation).read_all() == expected
    assert (
        found.summary["records"]["after"]
        == after.scan(isolation="read_uncommitted").read_all().num_rows
    )
    assert str(found.summary["records"]["after"]) in repr(found)
    kept = set(expected["offset"].to_pylist())
    offsets = before.scan(isolation=isolation).read_all()["offset"].to_pylist()
    assert {offset for offset in offsets if offset in found} == kept


def test_parts_of_it(corpus: Corpus) -> None:
    found = kafkafs.open(corpus("compact-before"))["cmp-plain", 0].compacted(at=CLEANED)
    whole = found.scan().read_all()
    part = found.scan(start=2000, end=2400, columns=["offset", "key"]).read_all()
    assert part.column_names == ["offset", "key"]
    rows = [row for row in whole.to_pylist() if 2000 <= row["offset"] < 2400]
    assert part.to_pylist() == [{"offset": row["offset"], "key": row["key"]} for row in rows]
    assert len(rows) > 10


def test_now_is_what_nobody_says_otherwise(corpus: Corpus) -> None:
    """The topic's retention of three days retains only recent records."""
    partition = kafkafs.open(corpus("compact-before"))["cmp-delete", 0]
    far = partition.compacted(at=datetime(2100, 1, 1, tzinfo=UTC)).summary
    assert far["records"]["after"] == 0
    assert partition.compacted().summary["at"] < far["at"]


def test_damage(tmp_path: Path) -> None:
    inside, above = LiveLog(tmp_path / "inside"), LiveLog(tmp_path / "above")
    inside.damage(1)
    with pytest.raises(CorruptError):
        kafkafs.open(inside.directory)["t", 0].compacted()
    above.damage(4)
    found = kafkafs.open(above.directory)["t", 0].compacted()
    with pytest.raises(CorruptError):
        found.scan().read_all()
    reported: list[Damage] = []
    assert found.scan(on_damage=reported.append).read_all()["offset"].to_pylist() == [0, 1, 2, 3, 5]
    assert [damage.first_offset for damage in reported] == [4]
