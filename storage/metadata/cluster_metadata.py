"""The state of a cluster as the KRaft log `__cluster_metadata-0` records it.

A KRaft broker keeps the log of all changes to the cluster there and, from time to time, writes a
snapshot of their sum. The state is a snapshot plus the records from its end offset on, so a
broker's directory can be interpreted offline, now or as of an earlier offset or time. As the log
grows, the state is updated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..clock import time_text
from ..errors import CorruptError, MetadataUnavailable, SegmentGone
from ..format.layout import NO_TIMESTAMP
from ..log.read.context import ReadContext
from ..log.read.log import Log
from ..log.read.view import View
from ..wording import printable
from .image import MetadataImage, Quorum, Voter
from .reading import (
    MetadataEntry,
    MetadataSnapshot,
    Problems,
    QuorumRecord,
    control_entries,
    list_snapshots,
    log_entries,
    read_quorum_state,
)
from .replay import MetadataReplay
from .settings import ClusterSettings, SettingsReplay

# Offsets listed in a message.
_OFFSETS_SHOWN: Final = 8


class _Sum:
    """The records applied so far, with the offset after them; -1 before the first read. `has_gap`:
    the log begins after what they started from."""

    def __init__(self, replay: MetadataReplay | None = None) -> None:
        self.replay = MetadataReplay() if replay is None else replay
        self.problems = Problems()
        self.offset = -1
        self.timestamp = NO_TIMESTAMP
        self.has_gap = False
        self._snapshot_end = 0  # of the snapshot whose quorum is not known yet

    def complete_quorum(self, view: View) -> bool:
        """Takes what is not known of the quorum from the log before the snapshot, which does not
        say who leads it. Returns whether that was still to be done."""
        end, self._snapshot_end = self._snapshot_end, 0
        if not end:
            return False
        earlier = MetadataReplay()
        for entry in control_entries(view, end):
            if isinstance(entry.record, QuorumRecord):
                earlier.apply_control(*entry.record, entry.leader_epoch)
        self.replay.assume_quorum(earlier.quorum)
        return True

    def start(self, snapshot: MetadataSnapshot, context: ReadContext) -> None:
        """Applies a snapshot. Raises SegmentGone, or CorruptError if it is not a file."""
        self._snapshot_end = snapshot.end_offset
        for entry in snapshot.entries(context, self.problems):
            if entry.snapshot_timestamp is not None:
                self.timestamp = entry.snapshot_timestamp
            self._apply(entry)

    def read(self, view: View, end: int) -> None:
        """Applies the log's records up to the offset `end`."""
        for entry in log_entries(view, self.offset, self.problems, end):
            self.timestamp = entry.timestamp
            self._apply(entry)
        self.offset = max(self.offset, end)

    def _apply(self, entry: MetadataEntry) -> None:
        record, replay = entry.record, self.replay
        if isinstance(record, QuorumRecord):
            replay.apply_control(*record, entry.leader_epoch)
            return
        replay.apply(record)
        if replay.complaints:
            self.problems.note_complaints(entry, replay.complaints)

    def image(self) -> MetadataImage:
        return self.replay.image(self.offset, self.timestamp, self.problems.all)


class ClusterMetadata:
    """The state in a partition of `__cluster_metadata`, updated as its log grows. If the log is
    shown as of `at_ms` (ms since 1970), so is the state."""

    def __init__(
        self,
        log: Log,
        context: ReadContext,
        at_ms: int | None = None,
        whole: Log | None = None,
    ) -> None:
        """`whole`: the same log as it is now, by default `log`."""
        self._log = log
        self._whole = log if whole is None else whole
        self._context = context
        self._at_ms = at_ms
        self._lock = threading.Lock()  # guards what follows
        self._view: View | None = None
        self._sum = _Sum()
        self._image = MetadataImage()

    @property
    def path(self) -> str:
        """The directory of the log."""
        return self._log.path

    @property
    def problems(self) -> list[str]:
        """What could not be read for `image`, one line each; everything else still takes effect."""
        return self._sum.problems.damage

    def image(self) -> MetadataImage:
        """Returns the current state. As cheap as `Log.view` if nothing was appended. What is
        missing between a snapshot and the log is one of the `problems`.

        Raises UnknownPartition if the directory was removed.
        """
        with self._lock:
            self._refresh()
            return self._image

    def image_at(self, offset: int | None = None) -> MetadataImage:
        """Returns the state after the records below `offset`, None for all: the newest snapshot at
        or before it plus the log up to it. Raises MetadataUnavailable if the log and the snapshots
        on the disk do not reach back that far, or not as far as that.

        What the log's control records do not say of the quorum is taken from `quorum-state`, but
        only for the current state: the file does not say since when it has been so."""
        if offset is not None:
            return self._image_below(offset)
        image = self._whole_image()
        if self._at_ms is not None or image.quorum.is_known:
            return image
        return self._with_quorum_state(image)

    def _whole_image(self) -> MetadataImage:
        with self._lock:
            view = self._refresh()
            if not self._sum.has_gap:
                if self._sum.complete_quorum(view):
                    self._image = self._sum.image()
                return self._image
        raise MetadataUnavailable(self._log.path, None, self._at_ms, self.reach())

    def _with_quorum_state(self, image: MetadataImage) -> MetadataImage:
        """Returns the current state with what `quorum-state` says of the quorum; if the file cannot
        be read, that is one of its problems."""
        try:
            state = read_quorum_state(self._log.directory)
        except CorruptError as error:
            return replace(image, problems=(*image.problems, str(error)))
        except OSError as error:
            problem = f"{printable(error.filename)}: {error.strerror}"
            return replace(image, problems=(*image.problems, problem))
        if state is None:
            return image
        voters = {each: Voter(each) for each in state.voters}
        noted = Quorum(state.leader_id, state.leader_epoch, voters)
        return replace(image, quorum=image.quorum.completed(noted))

    def _image_below(self, offset: int) -> MetadataImage:
        view = self._log.view()

        def fits(snapshot: MetadataSnapshot | None) -> bool:
            base = _end_of(snapshot)
            return base == offset or view.start_offset <= base <= offset <= view.end_offset

        found = self._started(filter(fits, self._bases(view)))
        if found.offset < 0:
            raise MetadataUnavailable(self._log.path, offset, self._at_ms, self.reach())
        found.complete_quorum(view)
        found.read(view, offset)
        return found.image()

    def settings(self) -> ClusterSettings:
        """Returns the records of what clients set, with the secrets that images lack, as of the
        time shown. Raises MetadataUnavailable if the log and the snapshots on the disk do not reach
        back that far."""
        view = self._log.view()
        replays: list[SettingsReplay] = []

        def replay() -> SettingsReplay:
            replays.append(SettingsReplay())
            return replays[-1]

        bases = [each for each in self._bases(view) if _end_of(each) >= view.start_offset]
        found = self._started(bases, replay=replay)
        if found.offset < 0:
            raise MetadataUnavailable(self._log.path, None, self._at_ms, self.reach())
        found.read(view, view.end_offset)
        [of_found] = (each for each in replays if each is found.replay)
        return of_found.settings()

    def history(self) -> MetadataHistory:
        """Returns the oldest state from which every later record is there, and these. Without such
        a state, returns the records that there are; if there are none, raises
        MetadataUnavailable."""
        view = self._log.view()
        bases = self._bases(view)
        if _is_empty(view):
            found = self._started(bases)
        else:
            continued = [each for each in bases if _end_of(each) >= view.start_offset]
            found = self._started(reversed(continued))
        if found.offset >= 0:
            found.complete_quorum(view)
            image = found.image()
        elif _is_empty(view):
            raise MetadataUnavailable(self._log.path, None, self._at_ms, self.reach())
        else:
            found.offset, image = 0, MetadataImage()
            self._note_gap(found, view)
        entries = self._entries(view, found, max(map(_end_of, bases), default=0))
        return MetadataHistory(found.replay, image, found.problems, entries)

    def _entries(self, view: View, found: _Sum, newest: int) -> Iterator[MetadataEntry]:
        """Yields the records after those that were applied. The log may have lost its end, below
        that of the `newest` snapshot."""
        yield from log_entries(view, found.offset, found.problems)
        end = max(found.offset, view.end_offset)
        if end < newest:
            what = f"offsets {end} to {newest - 1} are not in the log, only their sum in a snapshot"
            found.problems.note_damage(CorruptError(what, self._log.path))

    def reach(self) -> str:
        """Describes what the log and the snapshots on the disk reach back to, and how far they
        go."""
        view = self._whole.view()
        snapshots = list_snapshots(self._log.directory)
        joined = _joined(view, snapshots)
        oldest = _oldest(view, joined)
        start = view.start_offset if oldest is None else oldest[0]
        apart = sorted(each.end_offset for each in snapshots if each not in joined)
        text = ""
        if oldest is not None:
            end, last = view.end_offset, view.max_timestamp
            if joined and _is_empty(view):
                end, last = joined[0].end_offset, _time_of(joined[0], view)
            text = (
                f"the log and its snapshots reach from offset {start} ({time_text(oldest[1])})"
                f" to {end} ({time_text(last)})"
            )
        elif not apart:
            text = f"the log begins at offset {start}, and no snapshot is beside it"
        if apart:
            which = ", ".join(map(str, apart[:_OFFSETS_SHOWN]))
            other = "earlier" if apart[-1] < start else "other"
            text += f"{'; ' if text else ''}there are {other} snapshots at offset {which}"
        return text

    def _bases(self, view: View) -> list[MetadataSnapshot | None]:
        """Returns what the state can start from, the newest first: snapshots, and None for a log
        from offset 0 on."""
        found: list[MetadataSnapshot | None] = [
            each for each in list_snapshots(self._log.directory) if self._is_shown(each, view)
        ]
        return [*found, None] if view.start_offset == 0 else found

    def _is_shown(self, snapshot: MetadataSnapshot, view: View) -> bool:
        """Returns whether a snapshot has no record later than the time that is shown."""
        if self._at_ms is None:
            return True
        if view.ended_at_ms is not None and snapshot.end_offset > view.end_offset:
            return False
        last = snapshot.last_timestamp(self._context)
        if last is None:  # no later than the log's records up to that time, if there are any
            return view.start_offset < view.end_offset >= snapshot.end_offset
        return last <= self._at_ms

    def _refresh(self) -> View:
        """Reads what was appended since the last call."""
        view = self._log.view()
        if view is not self._view:
            self._read_on(view)
            self._view = view
        return view

    def _read_on(self, view: View) -> None:
        is_cut = self._view is not None and view.cuts != self._view.cuts
        if is_cut or not view.start_offset <= self._sum.offset <= view.end_offset:
            # The first read, or the log is no longer the one read so far. A damaged snapshot that
            # the log continues says more than one from long before.
            bases = self._bases(view)
            found = self._started(each for each in bases if _end_of(each) >= view.start_offset)
            self._sum = found if found.offset >= 0 else self._started(bases)
        found = self._sum
        found.offset = max(found.offset, 0)
        self._note_gap(found, view)
        found.read(view, view.end_offset)
        self._image = found.image()

    def _note_gap(self, found: _Sum, view: View) -> None:
        if found.offset < view.start_offset:
            found.has_gap = True
            what = (
                f"offsets {found.offset} to {view.start_offset - 1} are in no snapshot and not in"
                " the log"
            )
            found.problems.note_damage(CorruptError(what, self._log.path))

    def _started(
        self,
        bases: Iterable[MetadataSnapshot | None],
        replay: Callable[[], MetadataReplay] = MetadataReplay,
    ) -> _Sum:
        """Returns the state of the first of the bases without damage, or of the first that can be
        read; its offset is -1 if there is none. Its problems are those of all that were tried."""
        problems: list[str] = []
        damaged: _Sum | None = None
        for snapshot in bases:
            found = _Sum(replay())
            try:
                if snapshot is not None:
                    found.start(snapshot, self._context)
            except SegmentGone:
                continue  # a broker removes old snapshots
            except CorruptError as error:
                problems.append(str(error))
                continue
            found.offset = _end_of(snapshot)
            problems += found.problems.damage
            if not found.problems.damage:
                found.problems.damage += problems
                return found
            damaged = damaged or found
        found = damaged or _Sum()
        found.problems.damage[:] = problems
        return found


@dataclass(frozen=True, slots=True)
class MetadataHistory:
    """The records of the metadata log after an `image`, the oldest known state, or an empty one if
    it is unknown: `entries` yields them, adding to `problems` what cannot be read. `replay` has
    that state, for the reader to apply them to."""

    replay: MetadataReplay
    image: MetadataImage
    problems: Problems
    entries: Iterator[MetadataEntry]


def _end_of(snapshot: MetadataSnapshot | None) -> int:
    """Returns the end offset of a base; that of the state before the first record is 0."""
    return 0 if snapshot is None else snapshot.end_offset


def _is_empty(view: View) -> bool:
    return view.start_offset == view.end_offset


def _joined(view: View, snapshots: Sequence[MetadataSnapshot]) -> list[MetadataSnapshot]:
    """Returns the snapshots that the log continues: its records from their end on are there. Of an
    empty log, that is only the newest one."""
    found = [each for each in snapshots if each.end_offset >= view.start_offset]
    return found[:1] if _is_empty(view) else [e for e in found if e.end_offset <= view.end_offset]


def _oldest(view: View, joined: Sequence[MetadataSnapshot]) -> tuple[int, int] | None:
    """Returns the oldest offset that can be shown together with all later ones, and the time of
    the record before it, or of the first record for 0; None if there is none."""
    if view.start_offset == 0 and not (_is_empty(view) and joined):
        first = next(log_entries(view, 0, Problems()), None)
        return 0, NO_TIMESTAMP if first is None else first.timestamp
    return (joined[-1].end_offset, _time_of(joined[-1], view)) if joined else None


def _time_of(snapshot: MetadataSnapshot, view: View) -> int:
    """Returns the time of a snapshot's last record, -1 if it is unknown."""
    last = snapshot.last_timestamp(view.context)
    return NO_TIMESTAMP if last is None else last
