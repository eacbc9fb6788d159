"""Which offsets each micro batch of a stream reads, as Spark's own Kafka source decides it.

Between batches a stream stands, in each partition, before an offset: these are its `Positions`, and
what Spark writes to the checkpoint is their JSON, in the shape of Spark's KafkaSourceOffset:
`{"orders": {"0": 23, "1": 42}}`. This runs on the driver.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from kafkafs.storage.errors import UnknownPartition, UnknownTopic
from kafkafs.storage.log.view import View

from .options import Options, TopicPartition
from .planning import (
    OffsetRange,
    assigned,
    bound,
    check_named,
    check_topics,
    cut,
    open_engine,
    report_loss,
)

#: For each partition the offset that is to be read next.
Positions = Mapping[TopicPartition, int]


def to_json(positions: Positions) -> dict[str, dict[str, int]]:
    """Always in the same order, since Spark compares the texts."""
    found: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(positions):
        found.setdefault(topic, {})[str(partition)] = positions[topic, partition]
    return found


def from_json(value: Mapping[str, Mapping[str, int]]) -> Positions:
    return {
        (topic, int(number)): offset
        for topic, numbers in value.items()
        for number, offset in numbers.items()
    }


class Stream:
    """The partitions that a query follows. `latest`: their ends as last seen, None before."""

    def __init__(self, log_dirs: Sequence[str], options: Options) -> None:
        """LogDirError, ConfigError."""
        self._engine = open_engine(log_dirs, options)
        self._options = options
        self._target: Positions | None = None
        self._last_batch = -float("inf")  # when it was begun, in seconds
        self.latest: Positions | None = None

    def stop_at_the_present_end(self) -> None:
        """From now on nothing counts that comes later (Trigger.AvailableNow)."""
        self._target = self._ends()

    def next_end(self, start: Positions | None, limited: bool) -> Positions:
        """Where a batch ends that begins at `start`, or at the starting offsets; `start` itself
        when it is to wait. Without `limited` all that is there is read.

        OptionError where the query cannot begin, DataLoss.
        """
        self.latest = latest = self._ends() if self._target is None else self._target
        if start is None:
            check_topics(self._engine.topics(), self._options)
            check_named(self._options.starting, latest)
            start = self._starting(latest)
        if not limited:
            return latest
        begins = {key: start[key] if key in start else self._log_start(key) for key in latest}
        if self._is_too_little(begins, latest):
            return start
        most = self._options.max_offsets_per_trigger
        return latest if most is None else _limited(begins, latest, most)

    def plan(self, start: Positions | None, end: Positions) -> list[OffsetRange]:
        """What tasks read of a batch. `start` None is the query's first batch, which may have been
        begun before: Spark keeps where it ends, and not where it begins.

        DataLoss for what is not there any more.
        """
        if start is None:
            start = self._starting(end)
        for key in sorted(start.keys() - end.keys()):
            self._report(key, f"has gone; it was read up to offset {start[key]}")
        parts = [part for key in sorted(end) for part in self._part(key, start.get(key), end[key])]
        return cut(parts, self._options)

    def close(self) -> None:
        self._engine.close()

    def _ends(self) -> dict[TopicPartition, int]:
        """Of all partitions that are there now."""
        chosen = assigned(self._engine.topics(), self._options)
        views = {key: self._view(key) for key in chosen}
        isolation = self._options.isolation
        return {key: view.bound(isolation) for key, view in views.items() if view is not None}

    def _starting(self, ends: Positions) -> Positions:
        """The starting offsets, none behind its partition's end: the end of a batch that is done
        once more may be older than what the options name now, such as the latest offset."""
        options, found = self._options, dict(ends)
        for key, end in ends.items():
            view = self._view(key)
            if view is not None:
                found[key] = min(bound(view, options.starting, options), end)
        return found

    def _is_too_little(self, begins: Positions, latest: Positions) -> bool:
        """Whether the batch waits for more. Not for longer than maxTriggerDelay, and not where
        nothing more is to come."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        now = time.monotonic()
        waited = (now - self._last_batch) * 1000 >= self._options.max_trigger_delay_ms
        if not waited and sum(latest[key] - begins[key] for key in latest) < least:
            return True
        self._last_batch = now
        return False

    def _part(
        self, key: TopicPartition, start: int | None, end: int
    ) -> Iterator[tuple[View, int, int]]:
        """A partition's view and the offsets of it to read. One that was not there when the last
        batch ended is read from its first record on, which is lost unless its offset is 0."""
        start = start or 0
        if end < start:
            self._report(key, f"was read up to offset {start}, and ends at {end} now")
        if end <= start:
            return
        view = self._view(key)
        if view is None:
            self._report(key, f"has gone, and its offsets {start} to {end - 1} with it")
            return
        if view.start_offset > start:
            gone = f"offsets {start} to {min(view.start_offset, end) - 1} are not there any more"
            self._report(key, f"{gone}: the log starts at {view.start_offset} now")
        if view.end_offset < end:
            gone = f"offsets {max(view.end_offset, start)} to {end - 1} are not there any more"
            self._report(key, f"{gone}: the log ends at {view.end_offset} now")
        yield view, max(start, view.start_offset), min(end, view.end_offset)

    def _view(self, key: TopicPartition) -> View | None:
        try:
            return self._engine.log(*key).view()
        except (UnknownTopic, UnknownPartition):
            return None

    def _log_start(self, key: TopicPartition) -> int:
        view = self._view(key)
        return view.start_offset if view is not None else 0

    def _report(self, key: TopicPartition, what: str) -> None:
        topic, partition = key
        report_loss(f"{topic}-{partition} {what}", self._options.fail_on_data_loss)


def _limited(begins: Positions, latest: Positions, most: int) -> Positions:
    """Ends of about `most` offsets in all, of each partition in proportion to what it has, and at
    least one, so that none is starved."""
    sizes = {key: max(end - begins[key], 0) for key, end in latest.items()}
    total = sum(sizes.values())
    return {
        key: min(begins[key] + max(most * sizes[key] // total, 1), end) if sizes[key] else end
        for key, end in latest.items()
    }
