"""A model of what partitions must hold after a crash, given what was tried and what was
acknowledged.

A workload reports every step before it takes it and again when it is done; a crash may come in
between. The model receives these events, and checks the contents when the partitions are opened
again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field


def value_of(name: str, number: int, size: int) -> str:
    """Returns the value of record `number` of append `name`, padded to `size` characters."""
    return f"{name}.{number}.".ljust(size, "x")


@dataclass(frozen=True, slots=True)
class Try:
    """An append of one batch of `count` records is about to start, in transaction `txn` unless that
    is empty. Without records it is the transaction's end marker."""

    partition: str
    name: str
    count: int
    size: int = 0
    txn: str = ""
    commit: bool = False
    producer_id: int = -1
    sequence: int = -1
    codec: str = "NONE"

    @property
    def values(self) -> list[str]:
        return [value_of(self.name, number, self.size) for number in range(self.count)]


@dataclass(frozen=True, slots=True)
class Done:
    """The append was acknowledged with this first offset."""

    partition: str
    name: str
    first_offset: int


@dataclass(frozen=True, slots=True)
class Same:
    """The append was repeated and answered with its original offset."""

    partition: str
    name: str
    first_offset: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The append failed; none of its records may be present."""

    partition: str
    name: str


@dataclass(frozen=True, slots=True)
class Durable:
    """Everything acknowledged below `end` must survive a power cut."""

    partition: str
    end: int


@dataclass(frozen=True, slots=True)
class Trimming:
    """The log start offset may advance up to `start`."""

    partition: str
    start: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The log start offset `start` must survive a power cut: records below it stay deleted."""

    partition: str
    start: int


@dataclass(frozen=True, slots=True)
class Retaining:
    """Retention is about to delete segments of partitions, but keeps at least `kept` bytes of each;
    -1 once it is done."""

    kept: int


@dataclass(frozen=True, slots=True)
class Truncating:
    """The log is about to be truncated to `offset`, or has been if `done`."""

    partition: str
    offset: int
    done: bool


@dataclass(frozen=True, slots=True)
class Making:
    """The partition is about to be created, or has been if `done`."""

    partition: str
    done: bool


@dataclass(frozen=True, slots=True)
class Deleting:
    """The partition is about to be deleted, or has been if `done`."""

    partition: str
    done: bool


Event = (
    Try
    | Done
    | Same
    | Refused
    | Durable
    | Trimming
    | Trimmed
    | Truncating
    | Retaining
    | Making
    | Deleting
)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a partition holds: values by offset (None for a transaction's end marker), the
    transaction that each end marker ends, the log's size in bytes, and the offsets that a
    read_committed reader gets."""

    start: int
    end: int
    size: int
    values: Mapping[int, str | None]
    ends: Mapping[int, str]
    committed: Collection[int]


@dataclass(frozen=True, slots=True)
class Known:
    """What is at an offset: a record, or a transaction's end marker if `value` is None."""

    value: str | None
    txn: str
    commit: bool = False


#: Stands for records that a power cut took from the end of a segment that was not the last.
LOST = Known("", "")


@dataclass(slots=True)
class Partition:
    """One partition, as the events so far describe it."""

    name: str
    known: dict[int, Known] = field(default_factory=dict)
    #: What was truncated. The truncation need not be durable, so a power cut may restore it.
    former: dict[int, list[Known]] = field(default_factory=dict)
    truncating: int | None = None
    tried: dict[str, Try] = field(default_factory=dict)
    durable_end: int = 0
    start_least: int = 0
    start_most: int = 0
    may_exist: bool = True
    must_exist: bool = False

    @property
    def end(self) -> int:
        return max(self.known, default=-1) + 1

    def add(self, event: Event) -> None:
        match event:
            case Making():
                self.must_exist = True
            case Deleting(_, done):
                self.must_exist, self.may_exist = False, not done
            case Try():
                self.tried[event.name] = event
            case Done(_, name, first):
                self.known.update(_placed(self.tried.pop(name), first))
            case Same(_, name, first):
                value = self.known[first].value
                assert value is not None
                assert value.startswith(f"{name}.0."), f"{name} is not at {first}, but {value}"
            case Refused(_, name):
                del self.tried[name]
            case Durable(_, end):
                self.durable_end = max(self.durable_end, end)
            case Trimming(_, start):
                self.start_most = max(self.start_most, start)
            case Trimmed(_, start):
                self.start_least = max(self.start_least, start)
            case Truncating(_, offset, done):
                self.durable_end = min(self.durable_end, offset)
                self.start_least = min(self.start_least, offset)
                self.truncating = None if done else offset
                for gone in [each for each in self.known if done and each >= offset]:
                    self.former.setdefault(gone, []).append(self.known.pop(gone))

    def open_transactions(self) -> set[str]:
        """Returns the names of the transactions that have records but no end marker."""
        ended = {known.txn for known in self.known.values() if known.value is None}
        return {known.txn for known in self.known.values() if known.txn} - ended

    def judged(self, contents: Contents, power_cut: bool, kept: int) -> dict[int, Known]:
        """Returns what is at each offset now, and what was at those deleted since. Raises
        AssertionError if the contents contradict the events."""
        self._check_bounds(contents, power_cut, kept)
        found: dict[int, Known] = {}
        unused = dict(self.tried)
        offset = contents.start
        while offset < contents.end:
            former = self._former_at(offset, contents) if power_cut else None
            if former is not None:
                found[offset] = former
            elif offset in self.known:
                found[offset] = self._known_at(offset, contents, power_cut)
            else:
                found.update(self._tried_at(offset, contents, power_cut, unused))
            offset = max(found) + 1
        if not power_cut or not self.former:
            self._check_committed(contents, found)
        return {**{o: known for o, known in self.known.items() if o < contents.start}, **found}

    def _check_bounds(self, contents: Contents, power_cut: bool, kept: int) -> None:
        least = self.start_least
        assert contents.start >= least, f"{self.name} starts at {contents.start}, not {least}"
        if contents.start > self.start_most:
            why = f"{self.name} starts at {contents.start}, not up to {self.start_most}"
            assert kept >= 0, why
            assert contents.size >= kept, f"{why}, with only {contents.size} bytes left"
        least = self.end if self.truncating is None else min(self.end, self.truncating)
        least = self.durable_end if power_cut else least
        assert contents.end >= least, f"{self.name} ends at {contents.end}, not {least}"
        strays = [o for o in contents.values if not contents.start <= o < contents.end]
        assert not strays, f"{self.name} has offsets outside its bounds: {strays}"

    def _former_at(self, offset: int, contents: Contents) -> Known | None:
        """Returns truncated data that a power cut has restored, or what was acknowledged since;
        None if neither is there."""
        if offset not in contents.values or offset < self.durable_end:
            return None
        value = contents.values[offset]
        known = [self.known[offset]] if offset in self.known else []
        there = (each for each in [*known, *self.former.get(offset, [])] if each.value == value)
        return next(there, None)

    def _known_at(self, offset: int, contents: Contents, power_cut: bool) -> Known:
        """Returns what was acknowledged, or LOST if a power cut took it."""
        if offset not in contents.values:
            is_lost = self.known[offset] is LOST or (power_cut and offset >= self.durable_end)
            assert is_lost, f"{self.name}: nothing at offset {offset}"
            return LOST
        expected, there = self.known[offset].value, contents.values[offset]
        assert expected == there, f"{self.name}, offset {offset}: {there}, not {expected}"
        if there is None:
            ended, txn = contents.ends[offset], self.known[offset].txn
            assert ended == txn, f"{self.name}, offset {offset}: ends {ended}, not {txn}"
        return self.known[offset]

    def _tried_at(
        self, offset: int, contents: Contents, power_cut: bool, unused: dict[str, Try]
    ) -> dict[int, Known]:
        """Returns an append that was not acknowledged but is present, or LOST if it was at the end
        of a segment and a power cut took it."""
        if offset not in contents.values:
            is_lost = power_cut and offset >= self.durable_end and unused
            assert is_lost, f"{self.name}: nothing at offset {offset}"
            return {offset: LOST}
        value = contents.values[offset]
        if value is None:
            # Several threads may have been about to end transactions.
            txn = contents.ends[offset]
            ends = [name for name, tried in unused.items() if not tried.count and tried.txn == txn]
            assert ends, f"{self.name}, offset {offset}: an end marker that nobody wrote"
            return _placed(unused.pop(ends[0]), offset)
        tried = unused.pop(value.split(".")[0], None)
        assert tried is not None, f"{self.name}, offset {offset}: {value}, which nobody wrote"
        found = [contents.values.get(offset + at) for at in range(tried.count)]
        assert found == tried.values, f"{self.name}, offset {offset}: {found}, torn"
        return _placed(tried, offset)

    def _check_committed(self, contents: Contents, found: Mapping[int, Known]) -> None:
        """Checks what a read_committed reader sees, unless retention has deleted the first records
        of an open transaction: its first offset is unknown then."""
        ends: dict[str, bool] = {}
        for _, known in sorted(found.items()):
            if known.value is None:
                ends.setdefault(known.txn, known.commit)  # later end markers have no effect
        opened = {o: known.txn for o, known in found.items() if known.txn and known.txn not in ends}
        trimmed = [known for offset, known in self.known.items() if offset < contents.start]
        ended = {known.txn for known in trimmed if known.value is None} | ends.keys()
        if any(known.txn and known.txn not in ended for known in trimmed):
            return
        stable = min(opened, default=contents.end)
        expected = {
            offset
            for offset, known in found.items()
            if offset < stable and known.value and ends.get(known.txn, True)
        }
        wrong = sorted(expected ^ set(contents.committed))
        assert not wrong, f"{self.name}: wrong visibility of offsets {wrong} below {stable}"


class Model:
    """All partitions, given the events so far."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.partitions: dict[str, Partition] = {}
        self._kept = -1
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        if isinstance(event, Retaining):
            self._kept = event.kept
            return
        if isinstance(event, Making) and not event.done:
            self.partitions[event.partition] = Partition(event.partition)
        else:
            self.partitions[event.partition].add(event)

    def check(self, found: Mapping[str, Contents], power_cut: bool = False) -> None:
        """Raises AssertionError if `found`, the contents after a crash, contradict the events;
        otherwise takes them as the new state, with nothing in flight. A `power_cut` may lose what
        was not durable, a killed process nothing."""
        for name, partition in self.partitions.items():
            assert name in found or not partition.must_exist, f"{name} was created but is missing"
        judged: dict[str, Partition] = {}
        for name, contents in found.items():
            assert name in self.partitions, f"{name} was never created"
            partition = self.partitions[name]
            assert partition.may_exist, f"{name} was deleted but is present"
            known = partition.judged(contents, power_cut, self._kept)
            start = max(partition.start_most, contents.start)
            judged[name] = Partition(
                name, known, start_least=contents.start, start_most=start, must_exist=True
            )
        self.partitions, self._kept = judged, -1


def _placed(tried: Try, first: int) -> dict[int, Known]:
    """Returns what the append writes from offset `first` on."""
    values: list[str | None] = [*tried.values] or [None]
    known = (Known(value, tried.txn, tried.commit) for value in values)
    return dict(enumerate(known, first))
