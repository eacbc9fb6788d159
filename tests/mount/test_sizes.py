"""The size of a stream is the sum of its parts, and reads at any position return slices of the
whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkafs.mount.nodes.compacted import CompactedFile, CompactedStream
from kafkafs.mount.nodes.stream import StreamFile
from kafkafs.mount.options import MountOptions
from kafkafs.mount.streams import sizes, stream_index
from kafkafs.mount.streams.stream_index import MeasuredPart, Part, StreamIndex
from kafkafs.mount.streams.streams import StreamHandle
from kafkafs.mount.tree import Tree
from kafkafs.mount.vfs.errnos import Outgrown, PastEnd, Stale
from kafkafs.storage.errors import CorruptError
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from tests.mount.nodes import node_of
from tests.mounted.live import LiveLog, value
from tests.waiting import wait_until

STREAMS = ("values", "keys", "records.jsonl", "records.arrow")


def tree_of(directory: Path, isolation: Isolation = Isolation.READ_COMMITTED) -> Tree:
    return Tree(Engine([str(directory)]), MountOptions(isolation=isolation))


def stream(tree: Tree, path: str) -> StreamFile:
    return node_of(tree, path, StreamFile)


def whole_of(handle: StreamHandle) -> bytes:
    found = bytearray()
    while True:
        try:
            data = handle.read(len(found), 1 << 20)
        except CorruptError:
            continue
        if not data:
            return bytes(found)
        found += data


def opened(node: StreamFile) -> StreamHandle:
    handle = node.open()
    assert isinstance(handle, StreamHandle)
    return handle


@pytest.mark.parametrize("isolation", list(Isolation))
@pytest.mark.parametrize("name", ["kafka43-clean", "kafka43-crash"])
def test_sizes_are_the_sums_of_all_pieces(
    corpus: Callable[[str], Path], name: str, isolation: Isolation
) -> None:
    read, measured = (tree_of(corpus(name), isolation) for _ in range(2))
    for topic, numbers in read.catalog.topics().items():
        for number in numbers:
            for form in STREAMS:
                path = f"{topic}/{number}/{form}"
                node = stream(read, path)
                whole = whole_of(opened(node))
                assert len(whole) <= stream(measured, path).stream_size.size()
                size = stream(measured, path).stream_size
                assert size.measure(60.0)
                assert size.exact == len(whole), path
                # reading a stream through also measures it
                assert node.stream_size.look() == len(whole), path


@pytest.fixture(scope="module")
def rolled(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A partition of several segments with closely spaced checkpoints."""
    live = LiveLog(tmp_path_factory.mktemp("rolled") / "live")
    for turn in range(4):
        live.append(40 + turn)
        live.roll()
    live.append(30)
    return tree_of(live.directory)


@given(
    st.sampled_from(STREAMS),
    st.lists(st.tuples(st.floats(0, 1.1), st.integers(0, 3000)), max_size=12),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_slices_of_a_stream_that_was_measured(
    rolled: Tree, name: str, reads: list[tuple[float, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_index, "CHECKPOINT_DISTANCE", 300)
        rolled.catalog.stream_index = StreamIndex()
        rolled.catalog.contents = type(rolled.catalog.contents)()
        node = stream(rolled, f"t/0/{name}")
        whole = whole_of(opened(node))
        assert node.stream_size.look() == len(whole)
        handle = opened(node)
        assert not handle.direct_io
        for share, size in reads:
            position = int(share * len(whole))
            assert bytes(handle.read(position, size)) == whole[position : position + size]


def test_a_seek_decodes_one_segment(rolled: Tree) -> None:
    node = stream(rolled, "t/0/values")
    assert node.stream_size.measure(60.0)
    end = node.stream_size.exact
    assert end is not None
    start, restart = node.stream_size.before(end - 1)
    assert start > end // 2
    assert restart == node.partition.view().segments[-1].base_offset


def test_what_is_appended_is_all_that_is_measured_anew(live: LiveLog) -> None:
    tree = tree_of(live.directory)
    first = stream(tree, "t/0/values")
    assert first.stream_size.measure(60.0)
    live.append(5)
    second = stream(tree, "t/0/values")
    assert second.inode != first.inode
    part = second._source(second._seen.view).parts[-1]
    assert tree.catalog.stream_index.prefix(part).end == 6
    assert second.stream_size.measure(60.0)
    assert second.stream_size.exact == sum(len(value(each)) + 1 for each in range(live.end))
    # earlier handles keep their size, although the index has grown
    assert first.stream_size.exact == sum(len(value(each)) + 1 for each in range(6))


def test_a_bound_is_never_below_the_size(live: LiveLog) -> None:
    for name in STREAMS:
        size = stream(tree_of(live.directory), f"t/0/{name}").stream_size
        unsampled = size.size()
        size.sample()
        sampled = size.size()
        assert size.measure(60.0)
        assert size.exact is not None
        assert 0 < size.exact < sampled <= unsampled


def test_a_bound_that_was_too_small_is_corrected_by_who_reads_on(live: LiveLog) -> None:
    size = stream(tree_of(live.directory), "t/0/values").stream_size
    size.reported.note_reached(10 << 20)
    assert size.size() > 10 << 20


def test_a_name_leads_elsewhere_when_its_stream_outgrew_the_reported_size(live: LiveLog) -> None:
    least = live.append_misleading()
    tree = tree_of(live.directory)
    inodes, bounds = set(), []
    while True:
        node = stream(tree, "t/0/values")
        node.stream_size.sample()
        inodes.add(node.inode)
        bounds.append(node.attributes().size)
        assert stream(tree, "t/0/values") is node
        handle = opened(node)
        try:
            whole = whole_of(handle)
            break
        except Outgrown:
            assert len(handle.read(0, bounds[-1] - 1)) == bounds[-1] - 1
    assert len(whole) > least > bounds[0]
    assert len(whole) <= bounds[-1]
    assert len(inodes) == len(bounds) > 1
    assert bounds == sorted(bounds)
    assert node.attributes().size == len(whole)


def test_a_reported_bound_stays_until_the_size_is_known(live: LiveLog) -> None:
    for _ in range(9):
        live.roll()
        live.append(200)
    node = stream(tree_of(live.directory), "t/0/values")
    bound = node.attributes().size
    assert bound % 65536 == 0
    node.stream_size.sample()
    node.stream_size.measure(0.0)
    while node.stream_size.look() is None:
        assert node.attributes().size == bound
        node.stream_size.measure(0.0)
    assert node.attributes().size == node.stream_size.exact


def test_samples_are_spread_over_the_log(live: LiveLog) -> None:
    parts = [Part(number, 100 * number, 100 * number + 100, 1000) for number in range(2)]
    places = list(sizes._spread(parts, 8))
    assert places == [(parts[at // 4], 25 * at) for at in range(8)]
    parts = [Part(number, number, number + 1, 10) for number in range(100)]
    assert [part.begin for part, _ in sizes._spread(parts, 4)] == [0, 25, 50, 75]


def test_reading_past_the_end_by_a_bound_is_an_error(live: LiveLog) -> None:
    node = stream(tree_of(live.directory), "t/0/values")
    handle = opened(node)
    assert handle.direct_io
    end = len(whole_of(handle))
    assert not handle.read(end, 10)
    with pytest.raises(PastEnd, match=f"ends at {end}"):
        handle.read(end + 1, 10)
    assert not opened(node).read(end + 1, 10)


def test_a_stream_that_is_damaged_later_never_reads_short(live: LiveLog) -> None:
    node = stream(tree_of(live.directory), "t/0/values")
    assert node.stream_size.measure(60.0)
    live.damage(2)
    with pytest.raises(CorruptError, match="ends after"):
        opened(node).read(0, 1 << 20)


def test_what_compaction_would_leave_is_opened_while_a_cleaner_replaces_segments(
    live: LiveLog,
) -> None:
    tree = tree_of(live.directory)
    path = "t/0/compacted/values"
    listed = node_of(tree, path, CompactedFile)
    tree.catalog.previews.of(listed.partition)
    file = listed.fixed()
    assert isinstance(file, CompactedStream)
    held = file.hold()  # the first thing that an open does
    assert held is not None
    losses = listed.partition.seen().losses
    live.replace(0, [1])
    wait_until(lambda: listed.partition.seen().losses != losses)
    handle = file.open()
    assert isinstance(handle, StreamHandle)
    assert whole_of(handle) == live.lines()
    live.delete()
    with pytest.raises(Stale):
        wait_until(lambda: file.hold() is None)


def test_measuring_goes_on_where_it_stopped(live: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        live.append(3)
        live.roll()
    size = stream(tree_of(live.directory), "t/0/values").stream_size
    steps = 1
    while not size.measure(0.0):
        steps += 1
        assert size.size() >= sum(len(value(each)) + 1 for each in range(live.end))
    assert steps > 20
    assert not size.is_measuring
    assert size.exact == sum(len(value(each)) + 1 for each in range(live.end))


def test_measuring_that_is_stopped_keeps_what_was_measured(live: LiveLog) -> None:
    live.append(3)
    live.roll()
    tree = tree_of(live.directory)
    size = stream(tree, "t/0/values").stream_size
    while not len(tree.catalog.stream_index):
        assert not size.measure(0.0)
    size.stop()
    assert not size.is_measuring
    assert len(tree.catalog.stream_index) == 1
    assert size.measure(60.0)


def part(key: object, end: int = 10) -> Part:
    return Part(key, 0, end, 100)


def test_the_index_forgets_what_was_used_longest_ago() -> None:
    index = StreamIndex(most_bytes=3 * MeasuredPart(0).memory)
    for key in range(3):
        index.keep(part(key), MeasuredPart(10, key))
    assert index.find(part(0)) is not None
    index.keep(part(3), MeasuredPart(10))
    assert [index.find(part(key)) is not None for key in range(4)] == [True, False, True, True]
    assert index.memory <= 3 * MeasuredPart(0).memory


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5)), min_size=1), st.data())
def test_a_beginning_of_a_part(pieces: list[tuple[int, int]], data: st.DataObject) -> None:
    """For any offset, the known position is one from which the part can be resumed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_index, "CHECKPOINT_DISTANCE", 40)
        measured, places, offset = MeasuredPart(0), {0: 0}, 0
        for size, records in pieces:
            measured.add(size, offset)
            offset += records
            places[offset] = measured.length
        measured.end = offset
        end = data.draw(st.integers(0, offset))
        found = measured.up_to(end)
        if found is not None:
            assert found.end <= end
            assert places[found.end] == found.length
        position = data.draw(st.integers(0, measured.length))
        before = measured.before(position)
        if before is not None:
            assert before[0] <= position < before[0] + 200 or before[0] == measured.positions[-1]
            assert places[before[1]] == before[0]


def test_speeds_are_learnt() -> None:
    speeds = sizes.Speeds()
    before = speeds.of("values")
    speeds.note("values", 1000, 1.0)  # too little to learn from
    assert speeds.of("values") == before
    speeds.note("values", 10 << 20, 1.0)
    assert speeds.of("values") == 10 << 20
    assert speeds.of("keys") == before
