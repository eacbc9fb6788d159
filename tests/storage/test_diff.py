"""Two copies of log directories compared: of brokers' own directories before and after recovery and
cleaning, and of logs that differ in exactly what a test has changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import UnknownPartition, UnknownTopic
from kafkafs.storage.format.checksum import crc32c
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import EVERYTHING, Selection
from kafkafs.storage.operations.diff import Diff, diff
from kafkafs.storage.operations.request import PartitionFailed, ProgressListener
from tests import answers
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, write_checkpoint, write_partition, write_topic

Corpus = Callable[[str], Path]
Rows = list[dict[str, Any]]

THEN = 1_700_000_000_000


def differences(
    first: Path, second: Path, selection: Selection = EVERYTHING, *, by_bytes: bool = False
) -> Rows:
    """Returns the rows as JSON; those that failed have the member `error`."""
    engines = Engine(str(first)), Engine(str(second))
    return [row.as_json() for row in diff(engines, Diff(selection, by_bytes))]


def records(count: int, start: int = 0) -> list[SimpleRecord]:
    return [
        SimpleRecord(THEN + at, b"key %d" % at, b"value %d" % at, [("h", b"%d" % at)], offset=at)
        for at in range(start, start + count)
    ]


def batches(
    found: Sequence[SimpleRecord], sizes: Sequence[int], codec: Codec = Codec.NONE, epoch: int = 0
) -> list[bytes]:
    """Returns the records in batches of so many, the last ones in one."""
    made, at = [], 0
    for size in [*sizes, len(found)]:
        part = found[at : at + size]
        if part:
            fields = BatchFields(base_offset=part[0].offset, codec=codec, leader_epoch=epoch)
            made.append(build_batch(part, fields))
        at += size
    return made


def write(
    directory: Path, made: Sequence[bytes], *, segment_bytes: int = 1 << 30, base_offset: int = 0
) -> Path:
    settings = TopicSettings(segment_bytes=segment_bytes)
    return write_topic(directory, made, settings, base_offset=base_offset)


class TestCorpora:
    @pytest.mark.parametrize("name", ["kafka43-clean", "kafka28", "compact-after"])
    def test_a_copy_is_equal(self, corpus: Corpus, tmp_path: Path, name: str) -> None:
        shutil.copytree(corpus(name), tmp_path / "copy")
        assert differences(corpus(name), tmp_path / "copy", by_bytes=True) == []

    def test_recovery_after_a_crash_loses_nothing(self, corpus: Corpus) -> None:
        assert differences(corpus("kafka43-crash"), corpus("kafka43-crash-recovered")) == []

    def test_what_cleaning_removed(self, corpus: Corpus) -> None:
        rows = differences(corpus("compact-before"), corpus("compact-after"))
        assert {(row["difference"], row["onlyIn"]) for row in rows} == {("records", "first")}
        assert {row["why"] for row in rows} == {"compacted away", "below the log start offset"}
        for topic in ("cmp-plain", "cmp-zstd", "cmp-gaps"):
            before, after = (
                {record.offset for record in answers.records(name, topic, 0)}
                for name in ("compact-before", "compact-after")
            )
            [row] = [row for row in rows if row["topic"] == topic]
            lost = sorted(before - after)
            assert (row["startOffset"], row["endOffset"]) == (lost[0], lost[-1] + 1)
            assert row["records"] == len(lost)

    def test_damage_is_named_and_what_it_costs(self, corpus: Corpus) -> None:
        rows = differences(corpus("kafka43-torn"), corpus("kafka43-crash"))
        errors = [row for row in rows if "error" in row]
        assert errors
        assert all("kafka43-torn" in row["error"] for row in errors)
        lost = [row for row in rows if row.get("difference") == "records"]
        assert lost
        assert {row["onlyIn"] for row in lost} == {"second"}
        assert {row["why"] for row in lost} <= {"damaged", "past the log end offset"}


@given(
    count=st.integers(1, 60),
    sizes=st.lists(st.integers(1, 9), max_size=12),
    others=st.lists(st.integers(1, 9), max_size=12),
    codecs=st.tuples(st.sampled_from(Codec), st.sampled_from(Codec)),
    changes=st.lists(
        st.tuples(st.integers(0, 59), st.sampled_from(["key", "value", "time", "header", "drop"])),
        max_size=3,
    ),
    segment=st.sampled_from([300, 1 << 30]),
)
def test_exactly_what_was_changed_is_found(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    sizes: list[int],
    others: list[int],
    codecs: tuple[Codec, Codec],
    changes: list[tuple[int, str]],
    segment: int,
) -> None:
    """In whatever batches, segments and compression the records of the two copies are."""
    root = tmp_path_factory.mktemp("pair")
    original = records(count)
    changed = {offset % count: how for offset, how in changes}
    changed.pop(count - 1, None)  # the log ends with the same record
    other = [_changed(each, changed.get(each.offset, "")) for each in original]
    first = write(root / "a", batches(original, sizes, codecs[0]), segment_bytes=segment)
    kept = [each for each in other if changed.get(each.offset) != "drop"]
    second = write(root / "b", batches(kept, others, codecs[1]))
    rows = differences(first, second)
    found: dict[int, str] = {}
    for row in rows:
        if row["difference"] != "divergence":
            offsets = range(row["startOffset"], row["endOffset"])
            assert row["records"] == len(offsets)
            found |= dict.fromkeys(offsets, str(row["difference"]))
    names = {True: "records", False: "content"}
    assert found == {offset: names[how == "drop"] for offset, how in changed.items()}
    different = [offset for offset, how in changed.items() if how != "drop"]
    divergences = [row for row in rows if row["difference"] == "divergence"]
    assert [row["startOffset"] for row in divergences] == sorted(different)[:1]
    shutil.rmtree(root)


def _changed(record: SimpleRecord, how: str) -> SimpleRecord:
    match how:
        case "key":
            return replace(record, key=b"KEY" + (record.key or b"")[3:])
        case "value":
            return replace(record, value=None)
        case "time":
            return replace(record, timestamp=record.timestamp + 1)
        case "header":
            return replace(record, headers=[("h", b"?")])
    return record


class TestBatches:
    def test_equal_batches_between_two_differences_are_in_no_range(self, tmp_path: Path) -> None:
        """They are skipped by their bytes, without being decoded."""
        original, count = records(40), 40
        other = [
            replace(each, key=b"KEY" + (each.key or b"")[3:]) if each.offset in (10, 30) else each
            for each in original
        ]
        first, second = (
            write(tmp_path / name, batches(found, [1] * count))
            for name, found in (("a", original), ("b", other))
        )
        rows = [row for row in differences(first, second) if row["difference"] == "content"]
        assert [(row["startOffset"], row["records"]) for row in rows] == [(10, 1), (30, 1)]

    def test_other_batches_differ_only_by_bytes(self, tmp_path: Path) -> None:
        first = write(tmp_path / "a", batches(records(9), [3, 3]))
        second = write(tmp_path / "b", batches(records(9), [3]))
        assert differences(first, second) == []
        assert differences(first, second, by_bytes=True) == [
            {
                "difference": "batches",
                "topic": "t",
                "partition": 0,
                "startOffset": 3,
                "endOffset": 9,
                "records": 6,
            }
        ]

    def test_large_values_and_long_runs(self, tmp_path: Path) -> None:
        """What is compared in several steps; only one record differs, and others are missing."""
        found = records(3000)
        found[1000] = replace(found[1000], value=b"x" * 300_000)
        other = [each for each in found if each.offset not in (1500, 1501)]
        other[2000] = replace(other[2000], value=b"y")
        first = write(tmp_path / "a", batches(found, [7] * 300))
        second = write(tmp_path / "b", batches(other, [7] * 300))
        rows = differences(first, second)
        assert [(row["difference"], row["startOffset"]) for row in rows] == [
            ("divergence", 2002),
            ("records", 1500),
            ("content", 2002),
        ]


class TestOffsets:
    def test_a_truncated_and_trimmed_copy(self, tmp_path: Path) -> None:
        first = write(tmp_path / "a", batches(records(9), [3, 3]))
        second = write(tmp_path / "b", batches(records(6), [3]))
        write_checkpoint(second / "log-start-offset-checkpoint", ["t 0 2"])
        rows = differences(first, second)
        assert [(row["startOffset"], row["endOffset"], row["why"]) for row in rows] == [
            (0, 2, "below the log start offset"),
            (6, 9, "past the log end offset"),
        ]
        assert {row["onlyIn"] for row in rows} == {"first"}

    def test_copies_without_a_common_offset(self, tmp_path: Path) -> None:
        first = write(tmp_path / "a", batches(records(3), []))
        second = write(tmp_path / "b", batches(records(3, 6), []), base_offset=6)
        rows = differences(first, second)
        assert [(row["onlyIn"], row["startOffset"], row["endOffset"]) for row in rows] == [
            ("first", 0, 3),
            ("second", 6, 9),
        ]

    def test_a_gap_that_no_cleaner_has_made(self, tmp_path: Path) -> None:
        """A copy that was not cleaned so far, or is not compacted, has lost the records."""
        first = write(tmp_path / "a", batches(records(9), [3, 3]))
        made = batches(records(9), [3, 3])
        second = write(tmp_path / "b", [made[0], made[2]])
        for cleaned, why in (("0", "missing"), ("4", "compacted away")):
            write_checkpoint(second / "cleaner-offset-checkpoint", [f"t 0 {cleaned}"])
            rows = differences(first, second)
            assert why in [row["why"] for row in rows]
        assert [(row["startOffset"], row["why"]) for row in rows] == [
            (3, "compacted away"),
            (4, "missing"),
        ]


class TestEpochs:
    def test_a_replica_that_missed_a_change_of_leader(self, tmp_path: Path) -> None:
        common = batches(records(6), [3], epoch=1)
        lost = batches(records(2, 6), [], epoch=1)
        taken = [replace(each, value=b"other") for each in records(3, 6)]
        first = write(tmp_path / "a", [*common, *lost])
        second = write(tmp_path / "b", [*common, *batches(taken, [], epoch=2)])
        rows = differences(first, second)
        assert rows[0] == {
            "difference": "divergence",
            "topic": "t",
            "partition": 0,
            "startOffset": 6,
            "leader": "second",
            "first": 1,
            "second": 2,
        }
        assert [(row["difference"], row["startOffset"], row["endOffset"]) for row in rows[1:]] == [
            ("content", 6, 8),
            ("records", 8, 9),
        ]

    def test_equal_records_of_other_epochs(self, tmp_path: Path) -> None:
        first = write(tmp_path / "a", batches(records(6), [3], epoch=1))
        made = [*batches(records(3), [], epoch=1), *batches(records(3, 3), [], epoch=3)]
        second = write(tmp_path / "b", made)
        rows = differences(first, second)
        assert [(row["difference"], row["startOffset"]) for row in rows] == [
            ("divergence", 3),
            ("leader epoch", 3),
        ]

    def test_epochs_after_the_time_shown_do_not_count(self, tmp_path: Path) -> None:
        """A copy that was elected later was not more up to date then."""
        other = [replace(records(1)[0], value=b"other"), *records(5, 1)]
        first = write(tmp_path / "a", batches(other, []))
        later = batches(records(3, 3), [], epoch=4)
        second = write(tmp_path / "b", [*batches(records(3), []), *later])

        def divergence(at_ms: int | None) -> tuple[int, str | None]:
            engines = Engine(str(first), at_ms=at_ms), Engine(str(second), at_ms=at_ms)
            row = next(row.as_json() for row in diff(engines, Diff()))
            return row["startOffset"], row.get("leader")

        assert divergence(None) == (0, "second")
        assert divergence(THEN + 2) == (0, None)

    def test_progress(self, tmp_path: Path) -> None:
        """It is reported in bytes of both copies, and a comparison can be ended."""
        first = write(tmp_path / "a", batches(records(6), []))
        engines = Engine(str(first)), Engine(str(first))
        seen: list[tuple[str, int, int]] = []

        class Listener(ProgressListener):
            def report(self, what: str, done: int, total: int) -> None:
                seen.append((what, done, total))

            def check(self) -> None:
                if seen:
                    raise RuntimeError

        with pytest.raises(RuntimeError):
            list(diff(engines, Diff(), Listener()))
        size = (first / "t-0" / f"{0:020}.log").stat().st_size
        assert seen == [("comparing", size, 2 * size)]


class TestTopics:
    @pytest.fixture
    def pair(self, tmp_path: Path) -> tuple[Path, Path]:
        first = write(tmp_path / "a", batches(records(3), []))
        shutil.copytree(first, tmp_path / "b")
        return first, tmp_path / "b"

    def test_topics_and_partitions_of_one_copy(self, pair: tuple[Path, Path]) -> None:
        first, second = pair
        shutil.copytree(first / "t-0", first / "only-0")
        shutil.copytree(first / "t-0", second / "t-1")
        rows = differences(first, second)
        assert rows == [
            {"difference": "topic", "topic": "only", "onlyIn": "first"},
            {"difference": "partition", "topic": "t", "partition": 1, "onlyIn": "second"},
        ]
        assert differences(first, second, Selection.of("t/0")) == []
        with pytest.raises(UnknownTopic, match="did you mean only"):
            differences(first, second, Selection.of("onyl"))
        with pytest.raises(UnknownPartition, match="it has 0"):
            differences(first, second, Selection.of("t/2"))

    def test_ids_and_configs(self, pair: tuple[Path, Path]) -> None:
        first, second = pair
        path = second / "t-0" / "partition.metadata"
        path.write_text("version: 0\ntopic_id: " + "A" * 21 + "Q")
        meta = second / "meta.properties"
        meta.write_text(meta.read_text().replace("a2Fma2Fmcy10", "b2Fma2Fmcy10"))
        engines = (
            Engine(str(first), {"internal.segment.bytes": "5000"}),  # it has no default
            Engine(str(second), {"retention.ms": "1000"}),
        )
        rows = [row.as_json() for row in diff(engines, Diff())]
        assert [(row["difference"], row.get("name"), row["second"]) for row in rows] == [
            ("cluster id", None, "b2Fma2Fmcy10ZXN0cy4uLg"),
            ("topic id", None, "A" * 21 + "Q"),
            ("config", "internal.segment.bytes", None),
            ("config", "retention.ms", "1000"),
        ]

    def test_two_lives_of_a_topic(self, corpus: Corpus, tmp_path: Path) -> None:
        """Their ids are said first, and no copy is called more up to date than the other."""
        root = corpus("cluster43")
        for pair in (("1", "2"), ("2", "3")):
            rows = differences(root / pair[0], root / pair[1], Selection.of("reborn"))
            kinds = [row["difference"] for row in rows]
            assert kinds == ["topic id", "content", "records"]
            assert {rows[0]["first"], rows[0]["second"]} == {
                "lEJzfSo2S0-hzSjQs9redw", "rOU1hbxXQ2OD9HXCXYwjLQ",
            }  # fmt: skip
            assert not [row for row in rows if "leader" in row]

    def test_one_partition_of_another_life(self, pair: tuple[Path, Path]) -> None:
        """The broker missed the deletion, so that its directory has the old id; equal records of
        other leader epochs are equal then."""
        first, second = pair
        for root in pair:
            shutil.copytree(root / "t-0", root / "t-1")
        made = batches(records(3), [], epoch=7)
        write_partition(second / "t-1", made, topic_id=b"\2" * 16)
        [row] = differences(first, second)
        assert (row["difference"], row["partition"]) == ("topic id", 1)
        (second / "t-1" / "partition.metadata").unlink()
        assert [row["difference"] for row in differences(first, second)] == [
            "divergence", "leader epoch",
        ]  # fmt: skip

    def test_a_batch_that_cannot_be_decompressed(self, tmp_path: Path) -> None:
        """Its checksum is right; what the other copy has at its offsets is damaged there."""
        made = batches(records(9), [3, 3])
        bad = bytearray(made[1])
        bad[22] |= 1  # claims to be compressed with gzip
        bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
        first = write(tmp_path / "a", made)
        second = write(tmp_path / "b", [made[0], bytes(bad), made[2]])
        failed, *rows = differences(first, second)
        assert f"{second}/t-0/{0:020}.log: position {len(made[0])}" in failed["error"]
        assert [(row["startOffset"], row["endOffset"], row["why"]) for row in rows] == [
            (3, 6, "damaged")
        ]

    def test_damage_in_one_copy(self, pair: tuple[Path, Path]) -> None:
        first, second = pair
        log = second / "t-0" / f"{0:020}.log"
        data = bytearray(log.read_bytes())
        more = batches(records(3, 3), [])[0]
        data[-1] ^= 1
        log.write_bytes(data + more)
        engines = Engine(str(first)), Engine(str(second))
        rows = list(diff(engines, Diff()))
        [failed] = [row for row in rows if isinstance(row, PartitionFailed)]
        assert str(log) in failed.error
        found = [row.as_json() for row in rows if not isinstance(row, PartitionFailed)]
        assert [(row["onlyIn"], row["startOffset"], row["why"]) for row in found] == [
            ("first", 0, "damaged"),
            ("second", 3, "past the log end offset"),
        ]
