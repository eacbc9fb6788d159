"""Compares previews of compaction with real cleanings, and with a model."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkafs.storage.cleaner.preview.compacted_view import CompactedView
from kafkafs.storage.cleaner.preview.preview import PreviewRequest, completed, preview
from kafkafs.storage.config.kafka import BrokerConfig, TopicConfig, broker_config
from kafkafs.storage.errors import CleaningAborted, CorruptError
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from tests import answers
from tests.building import BatchFields, MessageFields, build_batch, build_messages
from tests.logs import TopicSettings, write_partition
from tests.mounted.live import LiveLog
from tests.reading import Plain, open_view, plain

#: Before, after, and the end of the broker's cleaning run in ms.
PAIRS = [
    ("compact-before", "compact-after", 1795248995048),
    ("compact-before2", "compact-after2", 1795249068851),
]
FIRST_CLEANED_MS = PAIRS[0][2]
TOPICS = sorted(answers.topic_configs("compact-before"))
NOW = 1_795_000_000_000
SMALL = TopicSettings(segment_bytes=400)


def of_corpus(engine: Engine, topic: str, now_ms: int) -> CompactedView:
    checkpoint = engine.partition_dir(topic, 0).log_dir.cleaner_offsets.get((topic, 0))
    request = PreviewRequest.of(
        engine.log(topic, 0).view(),
        engine.topic_config(topic).config,
        broker_config(engine.configs),
        checkpoint,
        now_ms,
    )
    return CompactedView(request, preview(request))


def records(view: View | CompactedView, isolation: Isolation) -> list[Plain]:
    found: list[Plain] = []
    for part in view.scan(isolation=isolation):
        assert isinstance(part, Columns)
        found += plain(part)
    return found


@pytest.mark.parametrize(("before", "after", "ended"), PAIRS)
def test_as_a_broker_left_them(
    corpus: Callable[[str], Path], before: str, after: str, ended: int
) -> None:
    """Compares all records, and exact sizes where batches are not compressed."""
    check_pair(corpus, before, after, ended)


def test_the_same_where_another_thread_reads(
    corpus: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkafs.storage.segment.walk._FIRST_RUN_BYTES", 4096)
    check_pair(corpus, *PAIRS[0])


def test_who_ends_a_pass_leaves_no_thread_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would go on decoding into buffers that others use by then."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr("kafkafs.storage.segment.walk._FIRST_RUN_BYTES", 400)
    monkeypatch.setattr("kafkafs.storage.segment.walk._RUN_GROWTH", 1)
    made = [
        build_batch(
            [SimpleRecord(NOW, b"key-%d" % base, bytes(100))], BatchFields(base_offset=base)
        )
        for base in range(40)
    ]
    write_partition(tmp_path / "t-0", made, TopicSettings(segment_bytes=4000))
    request = PreviewRequest.of(
        open_view(tmp_path / "t-0"), TopicConfig(), BrokerConfig(), None, NOW + 10**9
    )

    def helpers() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if "ahead" in each.name]

    def check() -> None:
        if helpers():
            raise CleaningAborted("enough")

    with pytest.raises(CleaningAborted) as raised:
        preview(request, check=check)
    assert raised.traceback  # which keeps all frames of the pass alive
    assert not helpers()


def check_pair(corpus: Callable[[str], Path], before: str, after: str, ended: int) -> None:
    engine, cleaned = Engine(str(corpus(before))), Engine(str(corpus(after)))
    gone: dict[str, int] = {}
    for topic in TOPICS:
        found, expected = of_corpus(engine, topic, ended), cleaned.log(topic, 0).view()
        for isolation in Isolation:
            assert records(found, isolation) == records(expected, isolation), topic
        summary = found.summary()
        assert summary["segments"]["after"] == len(expected.segments), topic
        assert summary["records"]["after"] == len(records(expected, Isolation.READ_UNCOMMITTED))
        assert summary["records"]["before"] - summary["records"]["after"] == sum(
            summary["gone"].values()
        )
        if topic in ("cmp-plain", "cmp-tomb", "cmp-delete", "cmp-lag", "cmp-producers"):
            assert summary["bytes"]["after"] == expected.size, topic
        gone = {reason: gone.get(reason, 0) + n for reason, n in summary["gone"].items()}
    assert gone["superseded"] > 1000
    assert gone["aborted"] > 100
    assert gone["expired" if ended == FIRST_CLEANED_MS else "tombstone"] > 0


def test_nothing_is_left_to_do_after_a_cleaning(corpus: Callable[[str], Path]) -> None:
    engine = Engine(str(corpus("compact-after")))
    for topic in TOPICS:
        found = of_corpus(engine, topic, FIRST_CLEANED_MS)
        assert found.summary()["passes"] == 0
        assert found.summary()["bytes"]["saved"] == 0
        assert records(found, Isolation.READ_COMMITTED) == records(
            found.view, Isolation.READ_COMMITTED
        )


# -- synthetic logs -----------------------------------------------------------------------------

COMPACT = TopicConfig(cleanup_policy=("compact",))


def write(directory: Path, keys: Sequence[bytes | None]) -> View:
    """Writes a partition with a record for each key, in batches of three and many segments."""
    batches = []
    for base in range(0, len(keys), 3):
        part = [
            SimpleRecord(NOW - 1000 + at, keys[at], b"value %d" % at)
            for at in range(base, min(base + 3, len(keys)))
        ]
        batches.append(build_batch(part, BatchFields(base_offset=base)))
    write_partition(directory, batches, SMALL)
    return open_view(directory)


def compacted(
    view: View, config: TopicConfig = COMPACT, *, in_full: bool = True, **broker: Any
) -> CompactedView:
    request = PreviewRequest.of(view, config, replace(BrokerConfig(), **broker), None, NOW)
    return CompactedView(request, preview(request, in_full=in_full))


@given(
    st.lists(st.sampled_from([None, b"a", b"b", b"c", b"d", b"e"]), max_size=120),
    st.integers(1, 4),
)
@example([b"%d" % (at % 50) for at in range(120)], 2)
def test_any_number_of_passes_leaves_the_same(
    tmp_path_factory: pytest.TempPathFactory, keys: list[bytes | None], capacity: int
) -> None:
    """The result does not depend on how many keys fit into the offset map."""
    view = write(tmp_path_factory.mktemp("log") / "t-0", keys)
    few = compacted(
        view,
        log_cleaner_dedupe_buffer_size=24 * capacity,
        log_cleaner_io_buffer_load_factor=1.0,
    )
    found = records(few, Isolation.READ_COMMITTED)
    end = view.segments[-1].base_offset
    latest = {key: at for at, key in enumerate(keys[:end])}
    kept = [at for at, key in enumerate(keys) if at >= end or (latest.get(key) == at and key)]
    assert [record.offset for record in found] == kept
    assert found == [
        record for record in records(view, Isolation.READ_COMMITTED) if record.offset in set(kept)
    ]
    summary, at_once = few.summary(), compacted(view).summary()
    assert summary | {"passes": 0} == at_once | {"passes": 0}
    assert summary["gone"]["keyless"] == keys[:end].count(None)
    assert summary["records"] == {"before": len(keys), "after": len(kept)}
    assert summary["passes"] >= len(set(keys[:end]) - {None}) // capacity
    for at in range(len(keys)):
        assert few.keeps(at) == (at in kept)
    assert few.first() == (kept[0] if kept else None)
    assert few.last() == (kept[-1] if kept else None)


ANY_RECORD = st.tuples(
    st.sampled_from([None, b"a", b"b", b"c", b"d", b"e"]), st.sampled_from([None, b"value"])
)


@given(st.lists(ANY_RECORD, max_size=100), st.integers(0, 3))
def test_what_stays_is_known_before_what_goes(
    tmp_path_factory: pytest.TempPathFactory,
    made: list[tuple[bytes | None, bytes | None]],
    gap: int,
) -> None:
    """Retained records are the same without the totals, and once they are added all is the same."""
    batches = [
        build_batch(
            [
                SimpleRecord(NOW - 1000 + at, *record)
                for at, record in enumerate(made[first : first + 3], first)
            ],
            BatchFields(base_offset=first * (gap + 1)),
        )
        for first in range(0, len(made), 3)
    ]
    directory = tmp_path_factory.mktemp("log") / "t-0"
    write_partition(directory, batches, SMALL)
    request = PreviewRequest.of(open_view(directory), COMPACT, BrokerConfig(), None, NOW)
    whole = CompactedView(request, preview(request))
    short = CompactedView(request, preview(request, in_full=False))
    assert (short.preview.totals is None) == bool(short.preview.end_offset)
    assert records(short, Isolation.READ_COMMITTED) == records(whole, Isolation.READ_COMMITTED)
    if short.preview.totals is None:
        again = CompactedView(request, completed(short.preview, request))
        assert again.totals == whole.totals
        assert again.summary() == whole.summary()
        assert records(again, Isolation.READ_COMMITTED) == records(whole, Isolation.READ_COMMITTED)


class TestWhereAllMustBeLookedAt:
    """Cases that depend on more than the keys, so that the totals are computed at once."""

    def check(self, view: View, config: TopicConfig = COMPACT, **about: Any) -> None:
        checkpoint = about.pop("checkpoint", None)
        broker = replace(BrokerConfig(), **about)
        request = PreviewRequest.of(view, config, broker, checkpoint, NOW)
        found = preview(request, in_full=False)
        assert found.end_offset
        assert found.totals == preview(request).totals

    def write(self, directory: Path, **fields: Any) -> View:
        records = [SimpleRecord(NOW - 1000, b"key", bytes(300))]
        batches = [build_batch(records, BatchFields(**fields))]
        batches += [build_batch(records, BatchFields(base_offset=base)) for base in (1, 2)]
        write_partition(directory, batches, SMALL)
        return open_view(directory)

    def test_the_plainest_log_is_not_such(self, tmp_path: Path) -> None:
        request = PreviewRequest.of(
            self.write(tmp_path / "t-0"), COMPACT, BrokerConfig(), None, NOW
        )
        assert preview(request, in_full=False).totals is None

    def test_markers(self, tmp_path: Path) -> None:
        self.check(self.write(tmp_path / "t-0", is_control=True, is_transactional=True))

    def test_delete_horizons(self, tmp_path: Path) -> None:
        self.check(self.write(tmp_path / "t-0", delete_horizon_ms=NOW - 1))

    @pytest.mark.parametrize("magic", [0, 1])
    def test_old_batches(self, tmp_path: Path, magic: int) -> None:
        records = [SimpleRecord(NOW - 1000, b"key", bytes(300))]
        batches = [build_messages(records, MessageFields(magic, base)) for base in range(3)]
        write_partition(tmp_path / "t-0", batches, SMALL)
        self.check(open_view(tmp_path / "t-0"))

    def test_sizes_that_retention_asks_for(self, tmp_path: Path) -> None:
        config = replace(COMPACT, cleanup_policy=("compact", "delete"), retention_ms=1 << 40)
        self.check(self.write(tmp_path / "t-0"), config)

    def test_a_part_that_is_clean(self, tmp_path: Path) -> None:
        self.check(self.write(tmp_path / "t-0"), checkpoint=1)

    @pytest.mark.parametrize("keys", [9, 60])
    @pytest.mark.parametrize("room", [2, 20, 40])
    def test_more_keys_than_there_is_room_for(self, tmp_path: Path, keys: int, room: int) -> None:
        """In the last pass the map holds all remaining keys, and only those."""
        view = write(tmp_path / "t-0", [b"%d" % (at % keys) for at in range(60)])
        few: dict[str, Any] = {
            "log_cleaner_dedupe_buffer_size": 24 * room,
            "log_cleaner_io_buffer_load_factor": 1.0,
        }
        if keys > room:
            self.check(view, **few)
        short = compacted(view, in_full=False, **few)
        assert records(short, Isolation.READ_COMMITTED) == records(
            compacted(view), Isolation.READ_COMMITTED
        )

    def test_offsets_far_apart(self, tmp_path: Path) -> None:
        """A bitmap of these offsets would take more memory than the map."""
        records = [SimpleRecord(NOW - 1000, b"key", bytes(300))]
        batches = [
            build_batch(records, BatchFields(base_offset=base)) for base in (0, 10**6, 10**7)
        ]
        write_partition(tmp_path / "t-0", batches, SMALL)
        self.check(open_view(tmp_path / "t-0"))


def test_any_part_of_it(tmp_path: Path) -> None:
    view = write(tmp_path / "t-0", [b"%d" % (at % 7) for at in range(100)])
    found = compacted(view)
    whole = records(found, Isolation.READ_COMMITTED)
    for start, end in ((0, 50), (50, None), (None, 95), (97, 99), (60, 60)):
        parts = [part for part in found.scan(start, end) if isinstance(part, Columns)]
        assert [record for part in parts for record in plain(part)] == [
            record
            for record in whole
            if (start or 0) <= record.offset < (100 if end is None else end)
        ]


def test_a_topic_that_is_not_compacted(tmp_path: Path) -> None:
    """It is previewed as if it were compacted; retention plays no part."""
    view = write(tmp_path / "t-0", [b"%d" % (at % 7) for at in range(60)])
    found = compacted(view, TopicConfig(cleanup_policy=("delete",), retention_ms=1))
    summary = found.summary()
    assert not summary["isCompacted"]
    assert not summary["isEligible"]
    assert summary["gone"]["superseded"] > 0
    assert summary["gone"]["expired"] == 0
    assert compacted(view).summary()["isCompacted"]
    assert compacted(view).summary()["isEligible"]


def test_all_of_it_may_expire(tmp_path: Path) -> None:
    view = write(tmp_path / "t-0", [b"%d" % (at % 7) for at in range(60)])
    config = TopicConfig(cleanup_policy=("compact", "delete"), retention_ms=1)
    summary = compacted(view, config).summary()
    assert summary["records"] == {"before": 60, "after": 0}
    assert summary["gone"]["expired"] == 60
    assert summary["bytes"]["after"] == 0
    assert summary["logStartOffset"] == 60
    assert records(compacted(view, config), Isolation.READ_COMMITTED) == []


class TestWhatStillHolds:
    """Tests when a preview remains valid for a log that has changed."""

    @pytest.fixture
    def live(self, tmp_path: Path) -> LiveLog:
        return LiveLog(tmp_path / "logs")

    def request(self, live: LiveLog, now_ms: int = NOW) -> PreviewRequest:
        return PreviewRequest.of(open_view(live.partition), COMPACT, BrokerConfig(), None, now_ms)

    def test_growth_changes_nothing(self, live: LiveLog) -> None:
        before = self.request(live)
        found = preview(before)
        live.append(3)
        after = self.request(live)
        assert after.view is not before.view
        assert found.answers(after)
        shown = records(CompactedView(after, found), Isolation.READ_COMMITTED)
        assert [record.offset for record in shown] == list(range(live.end))

    def test_a_roll_does(self, live: LiveLog) -> None:
        found = preview(self.request(live))
        live.append(2)
        live.roll()
        live.append(1)
        assert not found.answers(self.request(live))

    def test_a_cleaned_segment_does(self, live: LiveLog) -> None:
        found = preview(self.request(live))
        live.replace(0, [1])
        assert not found.answers(self.request(live))

    def test_a_delete_horizon_that_passes_does(self, corpus: Callable[[str], Path]) -> None:
        engine = Engine(str(corpus("compact-before2")))
        now = FIRST_CLEANED_MS
        found = of_corpus(engine, "cmp-txn", now)  # its delete.retention.ms has not expired
        expires = found.totals.expires_at_ms
        assert expires is not None
        assert expires > now
        assert found.preview.answers(replace(found.request, now_ms=expires - 1))
        assert not found.preview.answers(replace(found.request, now_ms=expires))


class TestDamage:
    def test_inside_it_ends_everything(self, tmp_path: Path) -> None:
        live = LiveLog(tmp_path / "logs")
        path = live.damage(3)
        with pytest.raises(CorruptError) as caught:
            compacted(open_view(live.partition))
        assert caught.value.file == str(path)
        assert caught.value.position > 0

    def test_above_the_bound_it_is_as_everywhere(self, tmp_path: Path) -> None:
        live = LiveLog(tmp_path / "logs")
        live.damage(4)
        view = open_view(live.partition)
        found = compacted(view)
        assert list(map(type, found.scan())) == list(map(type, view.scan()))
        assert found.summary()["records"] == {"before": 6, "after": 6}
