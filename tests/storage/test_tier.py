"""Partitions whose older segments are in remote storage, as a real broker left them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import ConfigError, CorruptError, LogDirError
from kafkafs.storage.format.files.checkpoints import EpochEntry, parse_offsets
from kafkafs.storage.format.messages.remote_log_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    parse_remote_log_metadata,
)
from kafkafs.storage.format.records.columns import Columns, Damage
from kafkafs.storage.log.read.explain import broker_answer
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.backup.making import make_point
from kafkafs.storage.operations.backup.request import Backup
from kafkafs.storage.operations.remote import remote_part, unread_parts
from kafkafs.storage.tier.aiven.manifest import decode_sizes, parse_manifest
from kafkafs.storage.tier.metadata import metadata_partition
from kafkafs.storage.tier.segments import RemotePiece, RemoteSegments
from tests import answers
from tests.remote_storage import AivenWriter, KeyPair, encoded_sizes

CORPUS = "tier43"
INNER = "kafka-tiered-storage"
ISOLATIONS = (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED)
Corpus = Callable[[str], Path]


def recorded() -> list[dict[str, Any]]:
    """Returns the records of `__remote_log_metadata`, as Kafka's own classes read them."""
    path = answers.directory(CORPUS) / "remote-metadata.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def offsets() -> dict[tuple[str, int], dict[str, int]]:
    """Returns the answers of the Admin API about tiered storage, without internal topics."""
    found = json.loads((answers.directory(CORPUS) / "tier-offsets.json").read_text())
    split = ((name.rpartition("-"), there) for name, there in found.items())
    return {(t, int(n)): there for (t, _, n), there in split if not t.startswith("__")}


def copied(local: Path) -> list[dict[str, Any]]:
    """Returns the segments that are in `local`."""
    starts = [each for each in recorded() if each["type"] == "RemoteLogSegmentMetadata"]
    return [
        each
        for each in starts
        if (
            local
            / f"{each['topic']}-{each['topic_partition']}-{each['topic_id']}"
            / f"{each['start_offset']:020d}-{each['segment_id']}.log"
        ).exists()
    ]


@dataclass(frozen=True)
class Place:
    """Remote storage, and how it is opened."""

    path: Path
    configs: Mapping[str, str]

    def engine(self, logs: Path) -> Engine:
        return Engine(str(logs), {"kafkafs.tier": str(self.path), **self.configs})

    def alone(self) -> Engine:
        return Engine(str(self.path), self.configs)


LAYOUTS = ("local", "plain", "prefixed", "encrypted", "described-by-files")


@pytest.fixture(scope="module")
def places(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Place]:
    root = tmp_path_factory.mktemp("tiers")
    tier = corpus(CORPUS) / "tier"
    keys = KeyPair(root / "key.pem")
    key_configs = {"kafkafs.tier.keys": f"{keys.key_id}={keys.path}"}
    writers: dict[str, tuple[AivenWriter, dict[str, str]]] = {
        "plain": (AivenWriter(root / "plain"), {}),
        "prefixed": (
            AivenWriter(root / "prefixed", prefix="pre-", compression=True),
            {"kafkafs.tier.prefix": "pre-"},
        ),
        "encrypted": (AivenWriter(root / "encrypted", keys=keys, compression=True), key_configs),
        "described-by-files": (
            AivenWriter(root / "by-files", chunk_size=1000, keys=keys, has_metadata=False),
            key_configs,
        ),
    }
    found = {"local": Place(tier, {})}
    for name, (writer, configs) in writers.items():
        writer.copy(tier / INNER, copied(tier / INNER))
        found[name] = Place(writer.root, configs)
    return found


Row = tuple[int, int, object, object, object]


def read(view: View, isolation: Isolation) -> list[Row]:
    """Returns the records that a view shows; fails at damage."""
    return [
        (r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
        for columns in view.read(isolation=isolation)
        for r in map(columns.record, range(len(columns)))
    ]


def expected_records(topic: str, number: int, isolation: Isolation) -> list[Row]:
    found = answers.records(CORPUS, topic, number, isolation.value)
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in found]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_partitions_have_no_seam(corpus: Corpus, places: dict[str, Place], layout: str) -> None:
    engine = places[layout].engine(corpus(CORPUS) / "logs")
    for (topic, number), there in offsets().items():
        view = engine.log(topic, number).view()
        bounds = answers.offsets(CORPUS)[topic, number]
        assert view.start_offset == there["earliest"]
        assert view.end_offset == there["latest"]
        assert view.last_stable_offset == bounds.last_stable
        part = remote_part(engine, (topic, number), view)
        assert part.local_start_offset == there["earliest_local"]
        assert part.latest_offset == there["latest_tiered"]
        assert not part.unread
        for isolation in ISOLATIONS:
            assert read(view, isolation) == expected_records(topic, number, isolation)
    assert engine.problems == []


def test_lookups_continue_from_one_part_into_the_other(
    corpus: Corpus, places: dict[str, Place]
) -> None:
    engine = places["encrypted"].engine(corpus(CORPUS) / "logs")
    for each in answers.times(CORPUS):
        view = engine.log(each.topic, each.partition).view()
        answer = broker_answer(view, each.timestamp, Isolation.READ_UNCOMMITTED).offset
        assert answer == (-1 if each.offset is None else each.offset)
    for topic, number in offsets():
        view = engine.log(topic, number).view()
        for record in answers.records(CORPUS, topic, number):
            found = view.find(record.offset)
            assert (found.key, found.value) == (record.key, record.value)


@pytest.mark.parametrize("layout", ["local", "plain", "described-by-files"])
def test_a_bucket_alone_is_a_log_directory(places: dict[str, Place], layout: str) -> None:
    engine = places[layout].alone()
    topics = json.loads((answers.directory(CORPUS) / "partitions.json").read_text())
    for (topic, number), there in offsets().items():
        latest = there["latest_tiered"]
        if latest < 0:
            assert topic not in engine.topics()
            continue
        assert engine.topic_id(topic) == topics[topic]["topic_id"]
        view = engine.log(topic, number).view()
        assert view.end_offset == latest + 1
        assert view.local_start_offset == view.end_offset
        for isolation in ISOLATIONS:
            known = expected_records(topic, number, isolation)
            found = [r for r in read(view, isolation) if r[0] >= there["earliest"]]
            assert found == [r for r in known if r[0] <= latest]
    assert engine.topics().keys() >= {"t-many"}
    assert engine.topics()["t-many"] == [0, 1]
    assert engine.problems == []


def test_what_is_not_read_is_named(corpus: Corpus) -> None:
    engine = Engine(str(corpus(CORPUS) / "logs"))
    for topic, number in offsets():
        engine.log(topic, number).view()
    lines = list(unread_parts(engine))
    unread = "t-gzip/0: offsets 0 to 350 are in remote storage, and were not read; see --tier"
    assert unread in lines
    assert not any(line.startswith("t-local/") for line in lines)
    untouched = {k for k, there in offsets().items() if there["earliest"] < there["earliest_local"]}
    assert {line.split(":")[0] for line in lines} == {f"{t}/{n}" for t, n in untouched}


def test_remote_storage_is_only_read(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only read"):
        LogManager(str(tmp_path), {"kafkafs.tier": str(corpus(CORPUS) / "tier")})


@pytest.mark.parametrize(("made", "why"), [(False, "no such directory"), (True, "LocalTiered")])
def test_a_place_that_is_no_remote_storage(
    corpus: Corpus, tmp_path: Path, made: bool, why: str
) -> None:
    place = tmp_path / "tier"
    if made:
        place.mkdir()
    with pytest.raises(LogDirError, match=why):
        Engine(str(corpus(CORPUS) / "logs"), {"kafkafs.tier": str(place)})


def test_a_segment_that_leaves_a_bucket_is_no_longer_read(corpus: Corpus) -> None:
    """The first one goes, so that the newest object, and its time, stay as they were."""
    import fsspec

    memory = fsspec.filesystem("memory")
    tier = corpus(CORPUS) / "tier" / INNER
    for path in sorted(tier.glob(f"{TOPIC}-0-*/*")):
        memory.pipe_file(f"/leaving/{path.relative_to(tier)}", path.read_bytes())
    configs = {"kafkafs.tier": "memory://leaving", "kafkafs.remote.list.ms": "0"}
    tier_of = Engine(str(corpus(CORPUS) / "logs"), configs).log_dirs.tier
    assert tier_of is not None
    layout = tier_of.layout
    log = Engine("memory://leaving", {"kafkafs.remote.list.ms": "0"}).log(TOPIC, 0)
    [key] = layout.partitions()
    before = layout.stamp(key)
    assert log.view().start_offset == 0
    for name in memory.glob("/leaving/*/00000000000000000000-*"):
        memory.rm_file(name)
    after = layout.stamp(key)
    assert after != before
    assert after[-1] == before[-1]
    assert log.view().start_offset == 171
    memory.rm("/leaving", recursive=True)
    assert layout.stamp(key) == ()


# -- damage ---------------------------------------------------------------------------------------

TOPIC = "t-many"  # partition 0 has remote segments from 0, 171, 311, 458, 580, 726 and 867 on


def scanned(engine: Engine, topic: str = TOPIC) -> tuple[list[int], list[CorruptError]]:
    """Returns the offsets and the damage that a scan finds."""
    found: list[int] = []
    errors: list[CorruptError] = []
    for part in engine.log(topic, 0).view().scan():
        if isinstance(part, Damage):
            errors.append(part.error)
        else:
            assert isinstance(part, Columns)
            found += part.offsets.tolist()
    return found, errors


@pytest.fixture
def copy(
    corpus: Corpus, places: dict[str, Place], tmp_path: Path
) -> Callable[[str], tuple[Place, Path]]:
    """Copies remote storage of a layout; returns it, and the directory of partition 0 of TOPIC."""

    def make(layout: str) -> tuple[Place, Path]:
        place = places[layout]
        target = tmp_path / "tier"
        shutil.copytree(place.path, target)
        found = sorted(target.rglob(f"*{TOPIC}-*"))
        partition = next(p for p in found if "-0-" in p.name or (p / "0").is_dir())
        if (partition / "0").is_dir():
            partition /= "0"
        return Place(target, place.configs), partition

    return make


@pytest.mark.parametrize("layout", ["local", "plain"])
def test_a_log_that_is_missing(
    corpus: Corpus, copy: Callable[[str], tuple[Place, Path]], layout: str
) -> None:
    place, partition = copy(layout)
    (lost,) = partition.glob("00000000000000000311-*.log")
    lost.unlink()
    found, errors = scanned(place.engine(corpus(CORPUS) / "logs"))
    assert found == [*range(311), *range(458, 893)]
    assert [(each.file, each.what.split(",")[0]) for each in errors] == [(str(lost), "missing")]


@pytest.mark.parametrize("layout", ["local", "plain"])
def test_a_log_that_is_cut_off(
    corpus: Corpus, copy: Callable[[str], tuple[Place, Path]], layout: str
) -> None:
    place, partition = copy(layout)
    (cut,) = partition.glob("00000000000000000311-*.log")
    cut.write_bytes(cut.read_bytes()[:9000])
    engine = place.engine(corpus(CORPUS) / "logs")
    found, errors = scanned(engine)
    assert {*range(311), *range(458, 893)} < set(found) < set(range(893))
    assert {each.file for each in errors} == {str(cut)}
    assert any(str(cut) in problem for problem in engine.problems)


def test_a_chunk_that_does_not_decrypt(
    corpus: Corpus, copy: Callable[[str], tuple[Place, Path]]
) -> None:
    place, partition = copy("described-by-files")
    (changed,) = partition.glob("00000000000000000311-*.log")
    data = bytearray(changed.read_bytes())
    data[5000] ^= 1
    changed.write_bytes(data)
    engine = place.engine(corpus(CORPUS) / "logs")
    found, errors = scanned(engine)
    assert {*range(311), *range(458, 893)} < set(found) < set(range(893))
    assert len(found) > 850
    assert {each.file for each in errors} == {str(changed)}
    assert all("chunk 4: it does not decrypt" in each.what for each in errors)


def test_the_wrong_key(corpus: Corpus, places: dict[str, Place], tmp_path: Path) -> None:
    other = KeyPair(tmp_path / "other.pem")
    logs = corpus(CORPUS) / "logs"
    for configs, why in (
        ({}, "--tier-key key1=FILE"),
        ({"kafkafs.tier.keys": str(other.path)}, "cannot be unwrapped with"),
    ):
        found, errors = scanned(Place(places["encrypted"].path, configs).engine(logs))
        assert found == []
        assert len(errors) == 7
        assert all(why in each.what and each.file.endswith(".log") for each in errors)


def test_a_file_that_is_no_key(corpus: Corpus, places: dict[str, Place], tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("no key")
    configs = {"kafkafs.tier.keys": str(tmp_path / "key.pem")}
    with pytest.raises(ConfigError, match="not an RSA key"):
        scanned(Place(places["encrypted"].path, configs).engine(corpus(CORPUS) / "logs"))


@pytest.mark.parametrize(
    "change",
    [
        {"originalFileSize": 2**31},
        {"originalFileSize": 100},
        {"originalChunkSize": 0},
        {"transformedChunkSize": 4000},
        {"type": "other"},
        None,
    ],
)
def test_a_manifest_with_wrong_sizes(
    corpus: Corpus, copy: Callable[[str], tuple[Place, Path]], change: dict[str, object] | None
) -> None:
    place, partition = copy("plain")
    (path,) = partition.glob("00000000000000000311-*.rsm-manifest")
    manifest = json.loads(path.read_text())
    if change is None:
        path.write_text("{")
    else:
        manifest["chunkIndex"].update(change)
        path.write_text(json.dumps(manifest))
    engine = place.engine(corpus(CORPUS) / "logs")
    found, errors = scanned(engine)
    assert {*range(311), *range(458, 893)} <= set(found) < set(range(893))
    named = {Path(each.file).name.split(".")[0] for each in errors}
    assert named == {path.name.split(".")[0]}
    alone, _ = scanned(place.alone())
    assert {*range(311), *range(458, 893)} <= set(alone)


def test_a_manifest_of_another_segment(copy: Callable[[str], tuple[Place, Path]]) -> None:
    place, partition = copy("plain")
    (path,) = partition.glob("00000000000000000311-*.rsm-manifest")
    (other,) = partition.glob("00000000000000000458-*.rsm-manifest")
    path.write_bytes(other.read_bytes())
    engine = place.alone()
    found, errors = scanned(engine)
    assert found == [*range(311), *range(458, 893)]
    assert "offsets 311 to 457 are not in remote storage" in errors[0].what
    assert any(f"{path}: it describes segment" in each for each in engine.problems)


def test_a_link_is_not_followed(corpus: Corpus, copy: Callable[[str], tuple[Place, Path]]) -> None:
    place, partition = copy("local")
    (path,) = partition.glob("00000000000000000311-*.log")
    path.rename(partition / "away")
    path.symlink_to(partition / "away")
    found, errors = scanned(place.engine(corpus(CORPUS) / "logs"))
    assert found == [*range(311), *range(458, 893)]
    assert [(each.file, each.what) for each in errors] == [
        (str(path), "a symbolic link, not a regular file")
    ]


# -- the rules ------------------------------------------------------------------------------------

PARTITION = TopicIdPartition("t", "AQEBAQEBAQEBAQEBAQEBAQ", 0)
COPIED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def segments_of(
    *given: tuple[str, int, int, dict[int, int]], deleted: Sequence[str] = ()
) -> RemoteSegments:
    """Returns segments that were copied one after the other: name, first and last offset, and
    leader epochs."""
    found = RemoteSegments()
    for name, start, end, epochs in given:
        segment_id = RemoteLogSegmentId(PARTITION, name)
        started = RemoteLogSegmentState.COPY_SEGMENT_STARTED
        found.apply(
            RemoteLogSegmentMetadata(
                segment_id, start, end, 1, 0, 0, tuple(sorted(epochs.items())), 1, None, started
            )
        )
        found.apply(RemoteLogSegmentMetadataUpdate(segment_id, 1, 0, None, COPIED))
    for name in deleted:
        segment_id = RemoteLogSegmentId(PARTITION, name)
        state = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
        found.apply(RemoteLogSegmentMetadataUpdate(segment_id, 1, 0, None, state))
    return found


def cut(pieces: Sequence[RemotePiece]) -> list[tuple[str, int, int]]:
    return [(each.segment.id, each.start, each.until) for each in pieces]


ONE = (EpochEntry(0, 0),)


def test_a_copy_counts_when_it_is_finished_and_until_its_deletion_starts() -> None:
    found = segments_of(("a", 0, 9, {0: 0}), ("b", 10, 19, {0: 10}), deleted=["a"])
    assert cut(found.pieces(ONE)) == [("b", 10, 20)]
    started = RemoteSegments()
    started.apply(
        RemoteLogSegmentMetadata(
            RemoteLogSegmentId(PARTITION, "c"), 0, 9, 1, 0, 0, ((0, 0),), 1, None,
            RemoteLogSegmentState.COPY_SEGMENT_STARTED,
        )
    )  # fmt: skip
    assert started.pieces(ONE) == []


def test_a_later_copy_replaces_those_that_it_covers() -> None:
    found = segments_of(("a", 0, 100, {0: 0}), ("b", 0, 200, {0: 0}))
    assert cut(found.pieces(ONE)) == [("b", 0, 201)]


def test_of_overlapping_segments_the_one_that_starts_last_is_read() -> None:
    found = segments_of(("a", 5, 50, {0: 5}), ("b", 14, 150, {0: 14}))
    assert cut(found.pieces(ONE)) == [("a", 5, 14), ("b", 14, 151)]
    inner = segments_of(("b", 5, 100, {0: 5}), ("a", 10, 90, {0: 10}))
    assert cut(inner.pieces(ONE)) == [("b", 5, 10), ("a", 10, 91), ("b", 91, 101)]


def test_what_the_log_lost_is_not_read() -> None:
    found = segments_of(("old", 0, 100, {0: 0}), ("new", 90, 150, {1: 90}))
    epochs = (EpochEntry(0, 0), EpochEntry(1, 90))
    assert cut(found.pieces(epochs)) == [("old", 0, 90), ("new", 90, 151)]
    assert cut(found.pieces(ONE)) == [("old", 0, 101)]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int, int, dict[int, int]]]:
    count = draw(st.integers(1, 8))
    found = []
    for number in range(count):
        start = draw(st.integers(0, 40))
        end = start + draw(st.integers(0, 20))
        epochs = sorted(draw(st.sets(st.integers(0, 3), min_size=1, max_size=3)))
        starts = sorted(draw(st.sets(st.integers(start, end), min_size=1, max_size=len(epochs))))
        starts[0] = start
        found.append((f"s{number}", start, end, dict(zip(epochs, starts, strict=False))))
    return found


@given(histories())
def test_pieces_are_in_order_and_inside_of_their_segments(
    history: list[tuple[str, int, int, dict[int, int]]],
) -> None:
    epochs = (EpochEntry(0, 0), EpochEntry(1, 15), EpochEntry(3, 30))
    pieces = segments_of(*history).pieces(epochs)
    for piece in pieces:
        assert piece.segment.start_offset <= piece.start < piece.until
        assert piece.until <= piece.segment.end_offset + 1
    assert all(one.until <= other.start for one, other in pairwise(pieces))


def test_the_partition_of_the_metadata() -> None:
    for each in recorded():
        partition = TopicIdPartition(each["topic"], each["topic_id"], each["topic_partition"])
        assert metadata_partition(partition, 2) == each["partition"]


def test_records_are_read_as_kafka_reads_them(corpus: Corpus) -> None:
    engine = Engine(str(corpus(CORPUS) / "logs"))
    found = []
    for number in (0, 1):
        for columns in engine.log("__remote_log_metadata", number).view().read():
            values = (columns.value(row) for row in range(len(columns)))
            found += [(number, parse_remote_log_metadata(value)) for value in values]
    assert len(found) == len(recorded())
    for (number, event), each in zip(found, recorded(), strict=True):
        assert number == each["partition"]
        assert type(event).__name__ == each["type"]
        if not isinstance(event, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate):
            continue
        assert (event.segment_id.id, event.state.name) == (each["segment_id"], each["state"])
        if isinstance(event, RemoteLogSegmentMetadata):
            epochs = {str(epoch): offset for epoch, offset in event.segment_leader_epochs}
            assert (event.start_offset, event.end_offset, event.segment_size, epochs) == (
                each["start_offset"],
                each["end_offset"],
                each["segment_size"],
                each["leader_epochs"],
            )


@given(st.binary(max_size=200))
def test_any_value_is_metadata_or_corrupt(value: bytes) -> None:
    with suppress(CorruptError):
        assert str(parse_remote_log_metadata(value))


@given(st.lists(st.integers(0, 2**31 - 1), max_size=50))
def test_sizes_of_chunks(sizes: list[int]) -> None:
    assert decode_sizes(encoded_sizes(sizes)).tolist() == sizes


def test_a_published_manifest() -> None:
    """The example in Aiven's own test of its manifests."""
    indexes = ("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction")
    manifest = {
        "version": "1",
        "chunkIndex": {
            "type": "fixed",
            "originalChunkSize": 100,
            "originalFileSize": 1000,
            "transformedChunkSize": 110,
            "finalTransformedChunkSize": 110,
        },
        "segmentIndexes": {name: {"position": n, "size": 1} for n, name in enumerate(indexes)},
        "compression": False,
        "encryption": {"dataKey": "key:AAAA", "aad": "CgsMDQ=="},
        "remoteLogSegmentMetadata": {
            "remoteLogSegmentId": {
                "topicIdPartition": {
                    "topicId": "lZ6vvmajTWKDBUTV6SQAtQ",
                    "topicPartition": {"topic": "topic1", "partition": 42},
                },
                "id": "adh9f8BMS4anaUnD8KWfWg",
            },
            "startOffset": 0,
            "endOffset": 1000,
            "maxTimestampMs": 1000000000,
            "brokerId": 2,
            "eventTimestampMs": 2000000000,
            "segmentLeaderEpochs": {"0": 100, "1": 200, "2": 300},
        },
    }
    found = parse_manifest(json.dumps(manifest).encode())
    assert found.chunks.positions.tolist() == list(range(0, 1101, 110))
    assert found.key is not None
    assert found.key.aad == b"\x0a\x0b\x0c\x0d"
    assert found.segment is not None
    assert (found.segment.start_offset, found.segment.end_offset) == (0, 1000)


@pytest.mark.parametrize(
    "value", [[], {}, 1, None, "x", {"version": "1"}, {"version": 1}, {"version": "2"}], ids=repr
)
def test_what_is_no_manifest(value: object) -> None:
    with pytest.raises(CorruptError):
        parse_manifest(json.dumps(value).encode())


def test_writing_keeps_the_log_starts_of_what_is_remote(corpus: Corpus, tmp_path: Path) -> None:
    """They are before the first local segments; without them a broker would serve again what was
    deleted from remote storage."""
    shutil.copytree(corpus(CORPUS) / "logs", tmp_path / "logs")
    checkpoint = tmp_path / "logs" / "log-start-offset-checkpoint"
    before = parse_offsets(checkpoint.read_bytes())
    with LogManager(str(tmp_path / "logs")) as manager:
        base = manager.writer("t-trimmed", 0).first_base_offset
    assert before["t-trimmed", 0] == 217 < base
    assert parse_offsets(checkpoint.read_bytes()) == before


def test_remote_storage_and_log_directories_may_be_in_an_archive(corpus: Corpus) -> None:
    archive = answers.DATA / "others" / f"{CORPUS}.tar.gz"
    engine = Engine(f"{archive}/logs", {"kafkafs.tier": f"{archive}/tier"})
    for level in ISOLATIONS:
        view = engine.log("t-txn", 0).view()
        found = [at for columns in view.read(isolation=level) for at in columns.offsets.tolist()]
        known = answers.records(CORPUS, "t-txn", 0, level)
        assert found == [record.offset for record in known]
    assert engine.problems == []


def test_a_backup_continues_remote_storage(corpus: Corpus, tmp_path: Path) -> None:
    logs, backup = corpus(CORPUS) / "logs", tmp_path / "backup"
    done = list(make_point(Engine(str(logs)), Backup(str(backup))))
    engine = Engine(str(backup), {"kafkafs.tier": str(corpus(CORPUS) / "tier")})
    view = engine.log("t-many", 0).view()
    found = [at for columns in view.read() for at in columns.offsets.tolist()]
    assert done
    assert found == [record.offset for record in answers.records(CORPUS, "t-many", 0)]
