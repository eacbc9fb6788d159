"""Tests a partition that a broker changes: appends, rolls, deletions, replacements, truncation."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkafs.storage.errors import CorruptError, SegmentGone, UnknownPartition
from kafkafs.storage.format.records.batch import BASE_OFFSET, BatchTable
from kafkafs.storage.format.records.columns import Columns, Damage
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd, OpenFile
from kafkafs.storage.log.read import tail
from kafkafs.storage.log.read.context import ReadLimits
from kafkafs.storage.log.read.log import Log
from kafkafs.storage.log.read.view import View
from kafkafs.storage.segment.extent import Extent, Fault
from kafkafs.storage.segment.walk import walk_headers
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, write_partition
from tests.reading import find, open_log, open_view, read, scan
from tests.threads import repeating


def batch(base: int, count: int = 2, value: bytes = b"") -> bytes:
    records = [
        SimpleRecord(100 + base + n, None, value or b"%04d" % (base + n)) for n in range(count)
    ]
    return build_batch(records, BatchFields(base_offset=base))


SIZE = len(batch(0))
FOUR = TopicSettings(segment_bytes=4 * SIZE, index_interval_bytes=0)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Writes twenty records in segments of eight: 0, 8 and 16."""
    write_partition(tmp_path / "p-0", [batch(base) for base in range(0, 20, 2)], FOUR)
    return tmp_path / "p-0"


def log_file(directory: Path, base: int, suffix: str = ".log") -> Path:
    return directory / f"{base:020}{suffix}"


def append(directory: Path, base: int, data: bytes) -> None:
    with log_file(directory, base).open("ab") as file:
        file.write(data)


def offsets(view: View) -> list[int]:
    return [record.offset for record in read(view)]


@pytest.fixture
def log(directory: Path) -> Log:
    return open_log(directory)


# -- appends ------------------------------------------------------------------------------------


def test_the_same_view_while_nothing_changes(log: Log, directory: Path) -> None:
    view = log.view()
    assert log.view() is view
    os.utime(directory, (1, 1))  # old enough to be trusted
    assert log.view() is log.view() is view


def test_appended_records_are_in_the_next_view_and_not_in_the_last(
    log: Log, directory: Path
) -> None:
    before = log.view()
    append(directory, 16, batch(20))
    after = log.view()
    assert after is not before
    assert (before.end_offset, after.end_offset) == (20, 22)
    assert offsets(before) == list(range(20))
    assert offsets(after) == list(range(22))
    assert find(before, 20) is None
    assert find(after, 20) is not None


def test_a_batch_that_comes_in_pieces_is_served_when_it_is_whole(log: Log, directory: Path) -> None:
    data = batch(20)
    for piece in range(0, SIZE, 10):
        append(directory, 16, data[piece : piece + 10])
        view = log.view()
        is_whole = piece + 10 >= SIZE
        assert view.end_offset == (22 if is_whole else 20)
        assert scan(view) == (read(view), [])


def test_a_partial_batch_makes_no_new_view(log: Log, directory: Path) -> None:
    before = log.view()
    append(directory, 16, batch(20)[:50])
    assert log.view() is before


def test_a_roll(log: Log, directory: Path) -> None:
    before = log.view()
    log_file(directory, 20).touch()
    rolled = log.view()
    assert [segment.base_offset for segment in rolled.segments] == [0, 8, 16, 20]
    assert rolled.end_offset == 20
    append(directory, 20, batch(20))
    append(directory, 20, batch(22))
    after = log.view()
    assert offsets(after) == list(range(24))
    assert offsets(before) == list(range(20))


def test_an_append_and_a_roll_between_two_looks(log: Log, directory: Path) -> None:
    log.view()
    append(directory, 16, batch(20))
    log_file(directory, 22).write_bytes(batch(22) + batch(24))
    assert offsets(log.view()) == list(range(26))


def test_a_partition_that_begins_empty(tmp_path: Path) -> None:
    (tmp_path / "p-0").mkdir()
    log = open_log(tmp_path / "p-0")
    assert (log.view().start_offset, log.view().end_offset) == (0, 0)
    assert scan(log.view()) == ([], [])
    assert log.view().max_timestamp == -1
    log_file(tmp_path / "p-0", 0).touch()
    assert log.view().end_offset == 0
    append(tmp_path / "p-0", 0, batch(0))
    assert offsets(log.view()) == [0, 1]


def test_a_growing_log_is_not_walked_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each append the view extends the previous one: every batch is walked once."""
    walked: list[int] = []  # base offsets

    def noted(extent: Extent) -> Iterator[BatchTable | Fault]:
        for part in walk_headers(extent):
            if isinstance(part, BatchTable):
                walked.extend(part.column(BASE_OFFSET).tolist())
            yield part

    monkeypatch.setattr(tail, "walk_headers", noted)
    log = open_log(directory)
    log.view()
    walked.clear()
    for base in range(20, 400, 2):
        append(directory, 16, batch(base))
        assert log.view().end_offset == base + 2
    assert walked == list(range(20, 400, 2))
    assert offsets(log.view()) == list(range(400))


# -- deletions ----------------------------------------------------------------------------------


def delete(directory: Path, base: int) -> None:
    """Deletes a segment as Kafka does: renamed at once, removed later."""
    for suffix in (".log", ".index", ".timeindex"):
        path = log_file(directory, base, suffix)
        path.rename(path.with_name(path.name + ".deleted"))


def test_retention_takes_segments_from_the_front(log: Log, directory: Path) -> None:
    before = log.view()
    assert offsets(before) == list(range(20))
    delete(directory, 0)
    after = log.view()
    assert (after.start_offset, after.end_offset) == (8, 20)
    assert offsets(after) == list(range(8, 20))
    assert find(after, 3) is None
    # The old view's files stay open as long as the pool has space for them.
    assert offsets(before) == list(range(20))


def test_a_pinned_view_stays_readable_after_deletion(directory: Path) -> None:
    """This holds even after the pool of open files has closed its files."""
    log = open_log(directory, limits=ReadLimits(open_files=1, cache_bytes=0))
    pinned = log.view()
    pinned.pin()
    pinned.pin()
    shutil.rmtree(directory)
    with pytest.raises(UnknownPartition):
        log.view()
    assert offsets(pinned) == list(range(20))
    assert [find(pinned, offset) is not None for offset in range(20)] == [True] * 20
    assert pinned.offset_for_time(111) == 11


def test_a_view_that_is_not_pinned_says_that_its_files_have_gone(directory: Path) -> None:
    log = open_log(directory, limits=ReadLimits(open_files=1, cache_bytes=0))
    view = log.view()
    delete(directory, 0)
    with pytest.raises(SegmentGone, match=r"0\.log"):
        offsets(view)
    assert offsets(log.view()) == list(range(8, 20))


def test_the_log_start_offset_moves(directory: Path) -> None:
    start = 0
    log = Log(
        open_log(directory).directory, "topic", 0, lambda: start, open_view(directory).context
    )
    assert log.view().start_offset == 0
    start = 5
    view = log.view()
    assert offsets(view) == list(range(5, 20))
    assert find(view, 4) is None
    assert view.offset_for_time(0) == 5


@pytest.mark.parametrize("start", [20, 21, 1000, (1 << 63) - 1])
def test_a_log_start_at_or_beyond_the_end_leaves_nothing(directory: Path, start: int) -> None:
    """Kafka empties such a log: it starts and ends there."""
    view = open_view(directory, start)
    assert (view.start_offset, view.end_offset, view.last_stable_offset) == (start, start, start)
    assert scan(view) == ([], [])
    assert view.first() is view.last() is view.offset_for_time(0) is None
    assert find(view, 19) is None
    assert find(view, start) is None


def test_a_log_start_below_the_first_segment_is_the_first_segment(directory: Path) -> None:
    delete(directory, 0)
    assert open_view(directory, 3).start_offset == 8


def test_a_partition_that_is_deleted_and_made_again(log: Log, directory: Path) -> None:
    log.view()
    directory.rename(directory.with_name("p-0.0123456789abcdef0123456789abcdef-delete"))
    with pytest.raises(UnknownPartition):
        log.view()
    write_partition(directory, [batch(0, value=b"new")])
    assert [record.value for record in read(log.view())] == [b"new", b"new"]


def test_a_partition_that_is_made_again_between_two_looks(log: Log, directory: Path) -> None:
    """Its directory was held open, and its name now belongs to another one."""
    assert len(offsets(log.view())) == 20
    directory.rename(directory.with_name("p-0.0123456789abcdef0123456789abcdef-delete"))
    write_partition(directory, [batch(0, value=b"new")])
    assert [record.value for record in read(log.view())] == [b"new", b"new"]


# -- truncation by a follower -------------------------------------------------------------------


def test_a_log_that_was_cut_is_shorter(log: Log, directory: Path) -> None:
    assert log.view().end_offset == 20
    os.truncate(log_file(directory, 16), SIZE)
    view = log.view()
    assert view.end_offset == 18
    assert offsets(view) == list(range(18))


@pytest.mark.parametrize("more", [0, 1, 5])
def test_a_log_that_was_cut_and_written_anew_holds_what_is_new(
    log: Log, directory: Path, more: int
) -> None:
    """It is not shorter than before, perhaps of the same length, but the old content is void."""
    old = log.view()
    assert [find(old, offset) is not None for offset in (18, 19)] == [True, True]
    assert old.max_timestamp == 119
    os.truncate(log_file(directory, 16), SIZE)
    for base in range(18, 20 + 2 * more, 2):
        append(directory, 16, batch(base, value=b"new!"))
    view = log.view()
    assert view.end_offset == 20 + 2 * more
    assert view.cuts == old.cuts + 1
    values = {record.offset: record.value for record in read(view)}
    assert (values[17], values[18], values[19]) == (b"0017", b"new!", b"new!")
    found = find(view, 19)
    assert found is not None
    assert found.value == b"new!"


def test_segments_cut_off_at_the_end_and_one_written_anew(log: Log, directory: Path) -> None:
    log.view()
    delete(directory, 16)
    os.truncate(log_file(directory, 8), 2 * SIZE)
    assert offsets(log.view()) == list(range(12))
    append(directory, 8, batch(12, value=b"x"))
    assert offsets(log.view()) == list(range(14))


# -- what the cleaner leaves and replaces -------------------------------------------------------


def compacted(bases: Iterator[int] | list[int]) -> bytes:
    """Returns batches that lost their first record."""
    return b"".join(
        build_batch(
            [SimpleRecord(101 + base, None, b"kept", offset=base + 1)],
            BatchFields(base_offset=base, last_offset=base + 1),
        )
        for base in bases
    )


ODD = [*range(1, 16, 2), 16, 17, 18, 19]


def swap_in(directory: Path) -> Iterator[str]:
    """Replaces the segments 0 and 8 by one, one step of the cleaner at a time."""
    cleaned = log_file(directory, 0, ".log.cleaned")
    cleaned.write_bytes(compacted([0, 2, 4]))
    yield "half written"
    cleaned.write_bytes(compacted(list(range(0, 16, 2))))
    yield "written"
    cleaned.rename(log_file(directory, 0, ".log.swap"))
    yield "committed"
    delete(directory, 0)
    yield "first original gone"
    delete(directory, 8)
    yield "all originals gone"
    log_file(directory, 0, ".log.swap").rename(log_file(directory, 0))
    yield "renamed"


def test_segments_that_are_replaced_are_never_missing_nor_twice_there(
    log: Log, directory: Path
) -> None:
    assert offsets(log.view()) == list(range(20))
    for state in swap_in(directory):
        view = log.view()
        found = offsets(view)
        is_old = state in ("half written", "written", "committed")
        assert found == (list(range(20)) if is_old else ODD), state
        assert found == offsets(open_view(directory)), state
        assert (find(view, 4) is not None) == is_old
        kept = find(view, 5)
        assert kept is not None
        assert kept.value == (b"0005" if is_old else b"kept")


def test_a_broker_that_died_while_replacing(directory: Path) -> None:
    for state in swap_in(directory):
        if state == "first original gone":
            break
    assert offsets(open_view(directory)) == ODD


def test_a_swap_without_an_original(directory: Path) -> None:
    log_file(directory, 8).rename(log_file(directory, 8, ".log.swap"))
    view = open_view(directory)
    assert offsets(view) == list(range(20))
    assert view.segments[1].path.endswith(".log.swap")


def test_swaps_do_not_count_while_the_cleaner_is_not_done(directory: Path) -> None:
    """A segment is being split: the second part is complete, the first is not."""
    log_file(directory, 12, ".log.swap").write_bytes(compacted([12, 14]))
    log_file(directory, 8, ".log.cleaned").write_bytes(compacted([8]))
    assert offsets(open_view(directory)) == list(range(20))


def test_a_swap_does_not_count_while_one_of_its_indexes_is_cleaned(directory: Path) -> None:
    """A segment's files are renamed one by one, the log first, newer segments before older ones."""
    log_file(directory, 22, ".log.swap").write_bytes(batch(22))
    log_file(directory, 20, ".log.swap").write_bytes(batch(20))
    index = log_file(directory, 20, ".index.cleaned")
    index.write_bytes(b"")
    assert offsets(open_view(directory)) == list(range(20))
    index.unlink()
    assert offsets(open_view(directory)) == list(range(24))
    log_file(directory, 20).write_bytes(b"")  # the active segment, which they replace
    assert offsets(open_view(directory)) == list(range(24))


def test_parts_of_a_split_segment_do_not_count_beside_their_original(directory: Path) -> None:
    log_file(directory, 12, ".log.swap").write_bytes(compacted([12, 14]))
    log_file(directory, 8, ".log.swap").write_bytes(compacted([8, 10]))
    assert offsets(open_view(directory)) == list(range(20))
    delete(directory, 8)
    assert offsets(open_view(directory)) == [*range(8), 9, 11, 13, 15, *range(16, 20)]


def test_leftovers_are_not_data(directory: Path) -> None:
    for name, data in {
        f"{30:020}.log.deleted": batch(30),
        f"{30:020}.log.cleaned": batch(30),
        f"{30:020}.index": bytes(80),
        f"{30:020}.snapshot.deleted": b"",
        "40.log": batch(40),
        f"{40:021}.log": batch(40),
        f"{10**19:020}.log": batch(40),
        f"{40:020}.log.bak": batch(40),
        ".log": batch(40),
    }.items():
        (directory / name).write_bytes(data)
    view = open_view(directory)
    assert (view.start_offset, view.end_offset) == (0, 20)
    assert offsets(view) == list(range(20))


# -- segments that are not regular files --------------------------------------------------------


def kept_and_lost(view: View) -> tuple[list[int], list[Damage]]:
    """Returns the offsets that a scan yields, and the damage that it reports."""
    kept: list[int] = []
    lost: list[Damage] = []
    for part in view.scan():
        if isinstance(part, Damage):
            lost.append(part)
        elif isinstance(part, Columns):
            kept += part.offsets.tolist()
    return kept, lost


@pytest.mark.parametrize("kind", ["fifo", "directory", "symlink", "dangling"])
@pytest.mark.parametrize("base", [0, 8, 16, 99])
def test_what_has_the_name_of_a_segment_and_is_no_file(
    directory: Path, kind: str, base: int
) -> None:
    """It counts as damage; opening it neither blocks nor leaves the directory."""
    path = log_file(directory, base)
    path.unlink(missing_ok=True)
    outside = directory.parent / "outside"
    outside.write_bytes(batch(base, value=b"out!"))
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(outside if kind == "symlink" else "/nowhere")
    log = open_log(directory)
    view = log.view()
    kept = [n for n in range(20) if n // 8 * 8 != base]
    assert kept_and_lost(view)[0] == kept
    word = {"fifo": "FIFO", "directory": "directory"}.get(kind, "symbolic link")
    [error] = log.damage.values()
    assert str(error) == f"{path}: a {word}, not a regular file"
    lost = kept_and_lost(view)[1]
    assert {(part.first_offset, str(part.error)) for part in lost} <= {(base, str(error))}
    assert lost or base > 8  # the last segment may still be being written


def test_a_segment_that_becomes_a_fifo_between_two_looks(directory: Path) -> None:
    log = open_log(directory, limits=ReadLimits(open_files=1))
    view = log.view()
    log_file(directory, 0).unlink()
    os.mkfifo(log_file(directory, 0))
    for seen in (view, log.view()):
        kept, lost = kept_and_lost(seen)
        assert kept == list(range(8, 20))
        assert [part.first_offset for part in lost] == [0]


def test_of_much_damage_some_is_kept(log: Log) -> None:
    new = [log.report(CorruptError("bad", "f", n)) for n in range(1500)]
    assert new == [True] * 1000 + [False] * 500
    assert not log.report(CorruptError("bad", "f", 3))
    assert len(log.damage) == 1000


def test_files_that_may_not_be_read_and_need_not_be(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = DirFd.open

    def refuse(self: DirFd, name: str) -> OpenFile:
        if not name.endswith(".log"):
            raise PermissionError(13, "Permission denied", name)
        return opened(self, name)

    monkeypatch.setattr(DirFd, "open", refuse)
    view = open_view(directory)
    assert offsets(view) == list(range(20))
    assert [find(view, n) is not None for n in range(20)] == [True] * 20
    assert view.offset_for_time(107) == 7


# -- threads ------------------------------------------------------------------------------------


def test_many_threads_read_one_view_and_look_for_new_ones(directory: Path) -> None:
    log = open_log(directory, limits=ReadLimits(open_files=2, cache_bytes=1000))

    def look() -> None:
        view = log.view()
        assert offsets(view) == list(range(view.end_offset))
        for offset in range(0, view.end_offset, 7):
            assert view.find(offset).value == b"%04d" % offset
        assert view.offset_for_time(110) == 10

    with repeating(*[look] * 6):
        for base in range(20, 220, 2):
            append(directory, 16, batch(base))
    assert log.view().end_offset == 220
