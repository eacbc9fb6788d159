"""Selects the offsets of each micro-batch of a stream, as Spark's own Kafka source does.

Between batches a stream has in each partition a next offset: these are its `PartitionOffsets`,
which Spark writes to the checkpoint as JSON. This runs on the driver.

A topic that was deleted and created again is data loss; it is detected by its id. The ids are in
the checkpoint; if they were omitted there, a running query still knows those of its last batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kafkafs.storage import (
    OffsetRange,
    TopicPartition,
    UnknownPartition,
    UnknownTopic,
    View,
    recreated,
)

from ..options import ReadOptions
from .partition_offsets import PartitionOffsets
from .planning import (
    assigned,
    bound,
    check_named,
    check_topics,
    cut,
    open_engine,
    report_loss,
    warn_of_unread,
)
from .topic_ids import by_topic, read_ids

_GO_ON: Final = (
    "Start a query with a checkpoint of its own, or set the option failOnDataLoss to false to"
    " continue at the new topic's log start"
)

Offsets = Mapping[TopicPartition, int]


class Stream:
    """The partitions that a query reads. `latest`: their ends as last seen, None before."""

    def __init__(self, log_dirs: Sequence[str], options: ReadOptions) -> None:
        """Opens the log directories. Raises LogDirError or ConfigError."""
        self._engine = open_engine(log_dirs, options)
        self._options = options
        self._target: PartitionOffsets | None = None
        self._last_batch = -float("inf")  # when it was started, in seconds
        self._known_ids: dict[tuple[tuple[TopicPartition, int], ...], Mapping[str, str]] = {}
        self.latest: PartitionOffsets | None = None

    def stop_at_the_present_end(self) -> None:
        """Ignores everything appended from now on (Trigger.AvailableNow)."""
        self._target = self._ends()

    def next_end(self, start: PartitionOffsets | None, limited: bool) -> PartitionOffsets:
        """Returns the end of the batch that starts at `start`, or at the starting offsets; `start`
        itself if the batch should wait. Unless `limited`, the batch contains everything available.

        Raises OptionError if the query cannot start, DataLoss, or CorruptError if topic ids are
        malformed or contradict each other.
        """
        self.latest = latest = self._ends() if self._target is None else self._target
        if start is None:
            check_topics(self._engine.topics(), self._options)
            check_named(self._options.starting, latest.offsets)
            start = PartitionOffsets(self._starting(latest.offsets), latest.topic_ids)
            self._warn_of_unread(start)
        start = self._with_ids(start, latest.topic_ids)
        others = self._others(start, latest)
        if self._options.fail_on_data_loss:  # else `plan` warns of them
            self._report_others(others, start, latest)
        end = self._end(start, latest, others, limited)
        self._remember(end, start)
        return end

    def _end(
        self,
        start: PartitionOffsets,
        latest: PartitionOffsets,
        others: Iterable[str],
        limited: bool,
    ) -> PartitionOffsets:
        if not limited:
            return latest
        begins = {key: self._begin(key, start, others) for key in latest.offsets}
        if self._is_too_little(begins, latest.offsets):
            return start
        most = self._options.max_offsets_per_trigger
        if most is None:
            return latest
        end = replace(latest, offsets=_limited(begins, latest.offsets, most))
        # The batch ends in the new topic at the offset that was reached in the old one: without
        # topic ids Spark sees no difference, and would never read the batch.
        is_unseen = end.offsets == start.offsets and not self._options.checkpoint_topic_ids
        return latest if is_unseen and others else end

    def _begin(self, key: TopicPartition, start: PartitionOffsets, others: Iterable[str]) -> int:
        if key in start.offsets and key[0] not in others:
            return start.offsets[key]
        return self._log_start(key)

    def plan(self, start: PartitionOffsets | None, end: PartitionOffsets) -> list[OffsetRange]:
        """Returns the ranges of a batch for its tasks. `start` None is the query's first batch,
        which may be a repetition: Spark stores only where it ends.

        Raises DataLoss for missing offsets, and CorruptError as `next_end` does.
        """
        ids = read_ids(self._engine, sorted(end.offsets))
        now = PartitionOffsets(dict.fromkeys(ids, 0), _some(by_topic(ids)))
        end = self._with_ids(end, now.topic_ids)
        gone = self._others(end, now)  # with all offsets that this batch should read of them
        self._report_others(gone, end, now)
        ends = {key: offset for key, offset in end.offsets.items() if key[0] not in gone}
        if start is None:
            start = PartitionOffsets(self._starting(ends), end.topic_ids)
        start = self._with_ids(start, end.topic_ids)
        others = self._others(start, end)
        self._report_others(others - gone, start, end)
        self._remember(end, start)
        for key in sorted(start.offsets.keys() - end.offsets.keys()):
            self._report(key, f"was deleted; it was read up to offset {start.offsets[key]}")
        parts = []
        for key, offset in sorted(ends.items()):
            begin = self._log_start(key) if key[0] in others else start.offsets.get(key, 0)
            topic_id = ids.get(key, "")
            parts += [(*part, topic_id) for part in self._part(key, begin, offset)]
        return cut(parts, self._options)

    def close(self) -> None:
        self._engine.close()

    def _ends(self) -> PartitionOffsets:
        """Returns the ends of all existing partitions. The ids are read first: if a topic is
        created again before its ends are read, they count as those of the old one, which is then
        reported as lost."""
        selected = assigned(self._engine.topics(), self._options)
        ids = read_ids(self._engine, selected)
        views = {key: self._view(key) for key in ids}
        isolation = self._options.isolation
        ends = {key: view.bound(isolation) for key, view in views.items() if view is not None}
        return PartitionOffsets(ends, _some(by_topic({key: ids[key] for key in ends})))

    def _starting(self, ends: Offsets) -> Offsets:
        """Returns the starting offsets, clamped to the ends: when a batch is repeated, its end may
        be below the present value of, say, "latest"."""
        options, found = self._options, dict(ends)
        for key, end in ends.items():
            view = self._view(key)
            if view is not None:
                found[key] = min(bound(view, options.starting, options), end)
        return found

    def _warn_of_unread(self, start: PartitionOffsets) -> None:
        for key, offset in start.offsets.items():
            view = self._view(key)
            if view is not None and offset == view.start_offset:
                warn_of_unread(self._engine, view)

    # -- topic ids ------------------------------------------------------------------------------

    def _with_ids(
        self, partition_offsets: PartitionOffsets, otherwise: Mapping[str, str]
    ) -> PartitionOffsets:
        """Returns the offsets with the topic ids from their JSON or those that this query
        remembers; `otherwise` has the ids for topics that are in neither."""
        known = self._known_ids.get(_key_of(partition_offsets), {})
        ids = {**otherwise, **known, **partition_offsets.topic_ids}
        of_these = {topic: ids[topic] for topic in partition_offsets.topics if topic in ids}
        return replace(partition_offsets, topic_ids=of_these)

    def _remember(self, end: PartitionOffsets, start: PartitionOffsets) -> None:
        """Remembers the ids of the two offsets that Spark may pass next. If they differ only in
        their ids, Spark reads no batch between them, and the stream remains at `start`."""
        self._known_ids = {
            _key_of(end): end.topic_ids,
            _key_of(start): start.topic_ids,
        }

    def _others(self, before: PartitionOffsets, after: PartitionOffsets) -> set[str]:
        """Returns the topics of `after` that have another id in `before`."""
        known, now = before.topic_ids, after.topic_ids
        return {topic for topic in after.topics if known.get(topic, "") not in ("", now.get(topic))}

    def _report_others(
        self, topics: Iterable[str], before: PartitionOffsets, after: PartitionOffsets
    ) -> None:
        for topic in sorted(topics):
            what = recreated(topic, before.topic_ids[topic], after.topic_ids.get(topic, ""))
            report_loss(what, self._options.fail_on_data_loss, _GO_ON)

    def _is_too_little(self, begins: Offsets, latest: Offsets) -> bool:
        """Returns whether the batch should wait for more offsets: not longer than maxTriggerDelay,
        and not if no more will be read."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        now = time.monotonic()
        waited = (now - self._last_batch) * 1000 >= self._options.max_trigger_delay_ms
        if not waited and sum(latest[key] - begins[key] for key in latest) < least:
            return True
        self._last_batch = now
        return False

    def _part(self, key: TopicPartition, start: int, end: int) -> Iterator[tuple[View, int, int]]:
        """Yields a partition's view and the offsets to read, if any. A partition that is new since
        the last batch is read from offset 0 on; offsets that no longer exist are data loss."""
        if end < start:
            self._report(key, f"was read up to offset {start}, but ends at {end} now")
        if end <= start:
            return
        view = self._view(key)
        if view is None:
            self._report(key, f"was deleted, and with it offsets {start} to {end - 1}")
            return
        if view.start_offset > start:
            gone = f"offsets {start} to {min(view.start_offset, end) - 1} no longer exist"
            self._report(key, f"{gone}: the log starts at {view.start_offset} now")
        if view.end_offset < end:
            gone = f"offsets {max(view.end_offset, start)} to {end - 1} no longer exist"
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


def _key_of(partition_offsets: PartitionOffsets) -> tuple[tuple[TopicPartition, int], ...]:
    return tuple(sorted(partition_offsets.offsets.items()))


def _some(ids: Mapping[str, str]) -> dict[str, str]:
    """Returns the ids without topics that have none."""
    return {topic: topic_id for topic, topic_id in ids.items() if topic_id}


def _limited(begins: Offsets, latest: Offsets, most: int) -> Offsets:
    """Returns ends for about `most` offsets in total: of each partition in proportion to its size,
    and at least one, so that none starves."""
    sizes = {key: max(end - begins[key], 0) for key, end in latest.items()}
    total = sum(sizes.values())
    return {
        key: min(begins[key] + max(most * sizes[key] // total, 1), end) if sizes[key] else end
        for key, end in latest.items()
    }
