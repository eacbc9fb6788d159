"""One read instead of a walk: used for ordinary logs, and never another answer than the walk's."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import StorageError
from kafkafs.storage.format.builder import BatchFields, SimpleRecord, build_batch
from kafkafs.storage.log import lookup
from kafkafs.storage.log.glance import glance
from kafkafs.storage.log.trace import Trace
from kafkafs.storage.log.view import View
from tests.index_damage import INDEX_DAMAGE, damage_indexes
from tests.logs import TopicSettings, write_partition
from tests.reading import open_view

RECORDS = 5
BATCHES = 30
LIMIT = 1 << 20


def write(directory: Path, value_bytes: int, step: int = 1) -> bytes:
    """BATCHES batches in one segment, each `step` times its records behind the one before."""
    batches = [
        build_batch(
            [SimpleRecord(1000 + number, b"k", b"v" * value_bytes) for _ in range(RECORDS)],
            BatchFields(base_offset=number * RECORDS * step),
        )
        for number in range(BATCHES)
    ]
    write_partition(directory, batches, TopicSettings(index_interval_bytes=600))
    return b"".join(batches)


@pytest.mark.parametrize("value_bytes", [10, 100, 500, 3000])
@pytest.mark.parametrize("step", [1, 3])
def test_every_offset_of_an_ordinary_log_is_seen_at_a_glance(
    tmp_path: Path, value_bytes: int, step: int
) -> None:
    write(tmp_path / "p-0", value_bytes, step)
    (segment,) = open_view(tmp_path / "p-0").segments
    for offset in range((BATCHES - 1) * RECORDS * step + RECORDS):
        seen = glance(segment, offset)
        header, fault = lookup.find_batch(segment, offset, LIMIT)
        assert header is not None
        assert fault is None
        assert seen is not None
        assert seen.header[:4] == (
            header.position,
            header.size,
            header.base_offset,
            header.last_offset,
        )
        assert len(seen.data) == header.size


def test_nothing_is_seen_behind_the_last_batch(tmp_path: Path) -> None:
    write(tmp_path / "p-0", 100)
    (segment,) = open_view(tmp_path / "p-0").segments
    assert glance(segment, BATCHES * RECORDS) is None


def test_without_an_index_there_is_no_glance(tmp_path: Path) -> None:
    write(tmp_path / "p-0", 100)
    (tmp_path / "p-0" / f"{0:020}.index").unlink()
    (segment,) = open_view(tmp_path / "p-0").segments
    assert glance(segment, 7) is None


def test_a_batch_with_a_wrong_checksum_is_left_to_the_walk(tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "p-0", 100))
    data[-1] ^= 1
    (tmp_path / "p-0" / f"{0:020}.log").write_bytes(data)
    (segment,) = open_view(tmp_path / "p-0").segments
    assert glance(segment, BATCHES * RECORDS - 1) is None
    assert glance(segment, (BATCHES - 1) * RECORDS - 1) is not None


def answers(view: View, offset: int) -> list[object]:
    """What `locate` says, at a glance if it can, and by the walk."""
    found: list[object] = []
    traces: tuple[Trace | None, ...] = (None, [])
    for trace in traces:
        try:
            columns, row = view.locate(offset, trace=trace)
        except StorageError as error:
            found.append((type(error), str(error)))
        else:
            found.append((columns.value(row), columns.batch_of(row)))
    return found


@given(
    st.lists(st.tuples(st.integers(0, 1 << 14), st.integers(1, 255)), max_size=3),
    INDEX_DAMAGE,
    st.integers(0, BATCHES * RECORDS),
)
def test_a_glance_at_damaged_bytes_says_what_the_walk_says(
    flips: list[tuple[int, int]], damage: list[tuple[int, str, int]], offset: int
) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name) / "p-0"
        data = bytearray(write(directory, 40))
        for at, bits in flips:
            data[at % len(data)] ^= bits
        (directory / f"{0:020}.log").write_bytes(data)
        damage_indexes(directory, damage)
        glanced, walked = answers(open_view(directory), offset)
        assert glanced == walked
