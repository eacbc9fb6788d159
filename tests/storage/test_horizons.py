"""Tests when tombstones and markers may be removed: the least delete horizon of all batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkafs.storage.cleaner.horizons import NO_HORIZON, next_horizon
from kafkafs.storage.format.records.batch import BatchHeader, BatchTable
from kafkafs.storage.log.read.lookup import extent_from
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.segment.segment import Segment
from kafkafs.storage.segment.walk import walk_headers

Corpus = Callable[[str], Path]
LIMIT = 1 << 27


def headers(segment: Segment) -> Iterator[BatchHeader]:
    for table in walk_headers(extent_from(segment, 0, LIMIT)):
        assert isinstance(table, BatchTable)
        yield from table


def has_something_to_go(view: View, segment: Segment, header: BatchHeader) -> bool:
    if header.record_count == 0:
        return False
    if header.is_control:
        return True
    columns = view.batch(segment, header)
    return any(columns.value(row) is None for row in range(len(columns)))


@pytest.mark.parametrize("name", ["compact-after", "compact-after2", "kafka28"])
def test_of_every_segment_that_a_cleaner_left(name: str, corpus: Corpus) -> None:
    engine = Engine(str(corpus(name)))
    found: dict[str, list[int]] = {}
    left_alone = 0
    for topic in engine.topics():
        view = engine.log(topic, 0).view()
        for segment in view.segments:
            with_horizon = [header for header in headers(segment) if header.has_delete_horizon]
            loaded = [each for each in with_horizon if has_something_to_go(view, segment, each)]
            left_alone += len(with_horizon) - len(loaded)
            least = min((each.base_timestamp for each in loaded), default=NO_HORIZON)
            assert next_horizon(segment, engine.context) == least
            found.setdefault(topic, []).append(least)
    if name == "kafka28":  # Kafka 2.8 had no horizons
        assert {each for horizons in found.values() for each in horizons} == {NO_HORIZON}
        return
    for topic in ("cmp-tomb", "cmp-txn", "cmp-txn-short"):
        assert max(found[topic]) > NO_HORIZON
    # Batches keep their horizon after their tombstones are removed.
    assert left_alone > 0 or name == "compact-after"
