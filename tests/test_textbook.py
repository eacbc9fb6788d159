"""The example topic shows all the numbers it is meant to show, and they follow from Kafka's
rules."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from examples.textbook import CAFE_SETTINGS, SHOP_SETTINGS, write_textbook
from kafkafs.storage.log.read.explain import (
    OffsetIndexStep,
    SegmentStep,
    Step,
    TimeIndexStep,
    WalkStep,
    explain_offset,
    explain_time,
)
from kafkafs.storage.log_dirs.engine import Engine
from tests.logs import Header, TopicSettings, rebuild_indexes, walk
from tests.reading import UNCOMMITTED

T = 1526384718288
CAFE = f"{251:020}"


@pytest.fixture(scope="module")
def textbook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("textbook")
    write_textbook(directory)
    return directory


def bases(partition: Path) -> list[int]:
    return [int(path.stem) for path in sorted(partition.glob("*.log"))]


def entries(file: Path, width: int) -> list[tuple[int, int]]:
    """Returns an index as (int32, int32) or (int64, int32) pairs, with offsets relative as
    stored."""
    data = file.read_bytes()
    cut = width - 4
    return [
        (int.from_bytes(data[at : at + cut]), int.from_bytes(data[at + cut : at + width]))
        for at in range(0, len(data), width)
    ]


def batches(partition: Path) -> Iterator[Header]:
    for log in sorted(partition.glob("*.log")):
        yield from walk(log.read_bytes())


def test_partition_0_has_the_segments_and_entries_of_the_literature(textbook: Path) -> None:
    partition = textbook / "textbook-0"
    assert bases(partition) == [0, 522, 1004]
    index = entries(partition / f"{522:020}.index", 8)
    assert [(522 + relative, position) for relative, position in index] == [
        (587, 6410),
        (639, 13795),
        (691, 21060),
        (743, 28367),
        (795, 35674),
    ]


def test_offset_600_is_in_the_second_batch_after_entry_587(textbook: Path) -> None:
    log = (textbook / "textbook-0" / f"{522:020}.log").read_bytes()
    walked = [header for header in walk(log) if header.position >= 6410][:2]
    assert [(header.base_offset, header.last_offset) for header in walked] == [
        (565, 587),
        (588, 613),
    ]
    assert b'{"order":600,' in walked[1].data


def test_partition_1_has_the_segments_and_entries_of_the_literature(textbook: Path) -> None:
    partition = textbook / "textbook-1"
    assert bases(partition) == [0, 133, 251]
    index = entries(partition / f"{CAFE}.index", 8)
    assert index[:5] == [(6, 156), (14, 459), (22, 656), (26, 838), (31, 1050)]
    times = entries(partition / f"{CAFE}.timeindex", 12)
    assert times[4] == (1526384718283, 28)


def test_offset_268_is_the_17th_and_found_from_the_entry_before_its_batch(textbook: Path) -> None:
    log = (textbook / "textbook-1" / f"{CAFE}.log").read_bytes()
    walked = [header for header in walk(log) if header.position >= 459][:3]
    assert [header.last_offset - 251 for header in walked] == [14, 16, 22]
    assert walked[2].base_offset <= 251 + 17 == 268 <= walked[2].last_offset


def test_the_time_is_found_from_the_time_entry_through_the_offset_entry(textbook: Path) -> None:
    partition = textbook / "textbook-1"
    at_most = [entry for entry in entries(partition / f"{CAFE}.timeindex", 12) if entry[0] <= T]
    assert at_most[-1] == (1526384718283, 28)
    below = [entry for entry in entries(partition / f"{CAFE}.index", 8) if entry[0] <= 28]
    assert below[-1] == (26, 838)
    walked = [h for h in walk((partition / f"{CAFE}.log").read_bytes()) if h.position >= 838]
    late = next(header for header in walked if header.max_timestamp >= T)
    assert [header.last_offset - 251 for header in walked[: walked.index(late)]] == [26, 28, 31]
    assert (late.base_offset, late.last_offset) == (283, 285)
    assert late.max_timestamp > T
    assert all(
        header.max_timestamp < T for header in batches(partition) if header.last_offset < 283
    )


def numbers(steps: Iterable[Step]) -> list[tuple[int, ...]]:
    """Returns, for each step, the numbers given in the literature."""
    found: list[tuple[int, ...]] = []
    for step in steps:
        if isinstance(step, SegmentStep):
            found.append((step.base_offset,))
        elif isinstance(step, OffsetIndexStep):
            found.append((step.relative_offset, step.position))
        elif isinstance(step, TimeIndexStep):
            found.append((step.timestamp, step.relative_offset))
        elif isinstance(step, WalkStep):
            found.append((step.batch.position,))
    return found


def test_the_engine_finds_offsets_by_these_steps(textbook: Path) -> None:
    engine = Engine(str(textbook))
    view = engine.log("textbook", 0).view()
    record = view.find(600)
    assert numbers(explain_offset(view, 600, UNCOMMITTED)) == [
        (522,),
        (587 - 522, 6410),
        (6410,),
        (9886,),
    ]
    assert json.loads(record.value or b"")["order"] == 600
    view = engine.log("textbook", 1).view()
    record = view.find(268)
    assert numbers(explain_offset(view, 268, UNCOMMITTED)) == [
        (251,),
        (14, 459),
        (459,),
        (557,),
        (656,),
    ]
    assert (record.key, record.value) == (b"8", b'["egg","ale"]')


def test_the_engine_finds_the_time_by_these_steps(textbook: Path) -> None:
    view = Engine(str(textbook)).log("textbook", 1).view()
    assert view.offset_for_time(T) == 284
    assert numbers(explain_time(view, T, UNCOMMITTED)) == [
        (251,),
        (1526384718283, 28),
        (26, 838),
        (838,),
        (959,),
        (1050,),
        (1171,),
    ]
    record = view.find(284)
    assert (record.timestamp, record.value) == (T, b'["tea","pie"]')


@pytest.mark.parametrize(("number", "settings"), [(0, SHOP_SETTINGS), (1, CAFE_SETTINGS)])
def test_the_indexes_follow_from_the_logs(
    textbook: Path, number: int, settings: TopicSettings
) -> None:
    for log in (textbook / f"textbook-{number}").glob("*.log"):
        data = log.read_bytes()
        indexes = rebuild_indexes(data, int(log.stem), settings.index_interval_bytes)
        assert indexes.offset_bytes() == log.with_suffix(".index").read_bytes()
        assert indexes.time_bytes() == log.with_suffix(".timeindex").read_bytes()


@pytest.mark.parametrize(("number", "end"), [(0, 1141), (1, 340)])
def test_no_offset_is_missing(textbook: Path, number: int, end: int) -> None:
    following = 0
    for header in batches(textbook / f"textbook-{number}"):
        assert header.base_offset == following
        count = int.from_bytes(header.data[57:61])
        following = header.last_offset + 1
        assert header.base_offset + count == following
    assert following == end


def test_each_run_writes_the_same_bytes(textbook: Path, tmp_path: Path) -> None:
    write_textbook(tmp_path)
    assert digest(tmp_path) == digest(textbook)


def test_a_value_is_json_that_can_be_read(textbook: Path) -> None:
    log = (textbook / "textbook-0" / f"{522:020}.log").read_bytes()
    start = log.index(b'{"order":600,')
    order, _ = json.JSONDecoder().raw_decode(log[start:].decode("latin-1"))
    assert list(order) == ["order", "customer", "city", "item", "quantity", "total", "note"]


def digest(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }
