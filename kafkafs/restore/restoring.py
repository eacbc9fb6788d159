"""Restores topics step by step, or counts what a restore would write.

Nothing is written before all that can be seen beforehand has been checked. Then the topics are
created, and before their first record, the state file says at which offset each partition begins.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from kafkafs.storage import (
    Codec,
    Columns,
    Engine,
    ProgressListener,
    TopicPartition,
)

from .cluster import RestoreError, TargetCluster
from .planning import Obstacle, RestoreRequest, TopicPlan, obstacles, plans
from .producing import RecordProducer
from .record_facts import RecordFacts, record_obstacles
from .records import undamaged
from .resuming import ends_at_rest, written
from .state import RestoredPartition, RestoreState, RestoreStateFile


@dataclass(frozen=True, slots=True)
class RestoredRow:
    """A partition that is restored, or would be: the number of `records`; the old offsets from
    `first` to `last`, -1 if there are none; the new ones from `new_first` on, -1 in a dry run;
    `size`: the bytes of keys and values, -1 except in a dry run."""

    topic: str
    partition: int
    target: str
    records: int
    first: int = -1
    last: int = -1
    new_first: int = -1
    size: int = -1

    def as_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "topic": self.topic,
            "partition": self.partition,
            "newTopic": self.target,
            "records": self.records,
            "firstOffset": self.first if self.records else None,
            "lastOffset": self.last if self.records else None,
        }
        if self.size >= 0:
            return {**row, "bytes": self.size}
        new = {"newFirstOffset": self.new_first, "newLastOffset": self.new_first + self.records - 1}
        return {**row, **(new if self.records else dict.fromkeys(new))}


class _Producers:
    """The producer in use. Successive topics with the same settings share it."""

    def __init__(self, cluster: TargetCluster, file: RestoreStateFile, state: RestoreState) -> None:
        self._cluster, self._file, self._state = cluster, file, state
        self._settings = ("", 0)
        self._present: RecordProducer | None = None

    def of(self, compression: str, max_batch_bytes: int) -> RecordProducer:
        """Returns the producer with these settings. What another one has sent is saved."""
        settings = (compression, max_batch_bytes)
        if self._present is None or settings != self._settings:
            self._settings = settings
            self._present = RecordProducer(
                self._cluster,
                self._file,
                self._state,
                compression=compression,
                max_batch_bytes=max_batch_bytes,
            )
        return self._present

    def save(self) -> None:
        """Saves the state, and what the producer has sent."""
        if self._present is None:
            self._file.save(self._state)
        else:
            self._present.save()


@dataclass(slots=True)
class Restore:
    """A restore of log directories into a cluster. `damage`: what could not be read, by file and
    position; the records around it are restored."""

    engine: Engine
    cluster: TargetCluster
    request: RestoreRequest
    progress: ProgressListener
    warn: Callable[[str], None]
    damage: dict[tuple[str, int], str] = field(default_factory=dict)

    def plans(self, state: RestoreState | None) -> list[TopicPlan]:
        """Raises RestoreError if the state is that of another cluster."""
        if state is not None and state.cluster_id != self.cluster.cluster_id:
            raise RestoreError(
                f"the state file is of a restore into the cluster {state.cluster_id}, and "
                f"{self.cluster.bootstrap} belongs to {self.cluster.cluster_id}"
            )
        return plans(self.engine, self.cluster, self.request)

    def obstacles(self, found: list[TopicPlan], state: RestoreState | None) -> Iterator[Obstacle]:
        """Yields what stands in the way, as far as it can be seen without reading records."""
        configs = self._configs(found)
        for plan in found:
            yield from obstacles(self.cluster, plan, state, configs[plan.source])
            if plan.target not in self.cluster.topics:
                try:
                    self.cluster.create([plan.new_topic()], validate_only=True)
                except RestoreError as error:
                    yield Obstacle(plan.source, str(error), True)

    def foreseen(self, found: list[TopicPlan], state: RestoreState | None) -> Iterator[Obstacle]:
        """Yields what the next records of each partition show to stand in the way; `count` yields
        what all of them do."""
        configs, now = self._configs(found), self.engine.clock.now_ms()
        known = {} if state is None else state.partitions
        for plan in found:
            facts = RecordFacts()
            for number, (low, high) in plan.here.items():
                partition = known.get((plan.source, number))
                if partition is not None:
                    low, high = partition.source_next, partition.source_end
                with closing(self._scan((plan.source, number), low, high)) as parts:
                    for columns in islice(parts, 1):
                        facts.add(columns)
            yield from record_obstacles(plan, facts, configs[plan.source], now)

    def _configs(self, found: list[TopicPlan]) -> dict[str, dict[str, str]]:
        """Returns the configs that each topic has, or will have, in the cluster."""
        there = [plan.target for plan in found if plan.target in self.cluster.topics]
        known = self.cluster.configs_of(there)
        defaults = self.cluster.default_configs() if len(there) < len(found) else {}
        return {
            plan.source: known.get(plan.target) or {**defaults, **plan.configs} for plan in found
        }

    def count(self, found: list[TopicPlan]) -> Iterator[RestoredRow | Obstacle]:
        """Reads all records; yields how many each partition has, and what stands in their way."""
        configs = self._configs(found)
        now = self.engine.clock.now_ms()
        total = sum(high - low for plan in found for low, high in plan.here.values())
        done = 0
        for plan in found:
            facts = RecordFacts()
            for number, (low, high) in plan.here.items():
                records = size = 0
                first = last = -1
                for columns in self._scan((plan.source, number), low, high):
                    records += len(columns)
                    size += facts.add(columns)
                    first = int(columns.offsets[0]) if first < 0 else first
                    last = int(columns.offsets[-1])
                    self.progress.report("reading records", done + last - low, total)
                done += high - low
                yield RestoredRow(plan.source, number, plan.target, records, first, last, size=size)
            yield from record_obstacles(plan, facts, configs[plan.source], now)

    def run(
        self, found: list[TopicPlan], file: RestoreStateFile, state: RestoreState
    ) -> Iterator[RestoredRow]:
        """Writes the records that the cluster does not have yet, and yields each partition that is
        complete. `state` is updated and saved."""
        keys = dict.fromkeys((plan.source, number) for plan in found for number in plan.here)
        known = state.partitions.items()
        resumed = {key for key, each in known if key in keys and not each.is_done}
        self._begin(found, file, state)
        targets = {key: (state.targets[key[0]], key[1]) for key in resumed}
        ends = ends_at_rest(self.cluster, targets.values())
        configs = self.cluster.configs_of(plan.target for plan in found)
        total, done = sum(state.partitions[key].span for key in keys), 0
        producers = _Producers(self.cluster, file, state)
        for plan in found:
            codec, limit = self._compression(plan), _largest_batch(configs[plan.target])
            for number in plan.here:
                key = (plan.source, number)
                partition = state.partitions[key]
                if not partition.is_done:
                    producer = producers.of(codec, limit)
                    if key in resumed:
                        self._resume(key, partition, producer, targets[key], ends[targets[key]])
                    self._write(key, partition, producer, done, total)
                done += partition.span
            self._complete(plan, state)
            producers.save()
            yield from self._rows(plan, state)

    def _begin(self, found: list[TopicPlan], file: RestoreStateFile, state: RestoreState) -> None:
        """Creates the topics, and saves where each partition begins."""
        self.cluster.create(
            [plan.new_topic() for plan in found if plan.target not in self.cluster.topics]
        )
        new = {
            (plan.source, number): (plan.target, number)
            for plan in found
            for number in plan.here
            if (plan.source, number) not in state.partitions
        }
        starts, ends = self.cluster.starts(new.values()), self.cluster.ends(new.values())
        for plan in found:
            state.targets[plan.source] = plan.target
            for number, (low, high) in plan.here.items():
                key = (plan.source, number)
                if key not in new:
                    continue
                if starts[new[key]] != ends[new[key]]:
                    where = "{}-{}".format(*new[key])
                    raise RestoreError(f"{where} of the cluster is not empty")
                base = ends[new[key]]
                state.partitions[key] = RestoredPartition(low, low, high, base, base)
        file.save(state)

    def _compression(self, plan: TopicPlan) -> str:
        """Returns the codec of the topic's config, or else that of its first batch."""
        name = plan.configs.get("compression.type", "producer")
        if name != "producer":
            return "none" if name == "uncompressed" else name
        for number, (low, high) in plan.here.items():
            with closing(self._scan((plan.source, number), low, high)) as parts:
                for columns in parts:
                    return columns.batches[0].codec.kafka_name
        return Codec.NONE.kafka_name

    def _resume(
        self,
        key: TopicPartition,
        partition: RestoredPartition,
        producer: RecordProducer,
        target: TopicPartition,
        end: int,
    ) -> None:
        """Notes what an earlier run has written after its last save."""
        if end < partition.target_next:
            where = "{}-{}".format(*target)
            raise RestoreError(
                f"{where} of the cluster ends at offset {end}, before {partition.target_next}, up"
                " to which it had acknowledged records: it has lost some, or was created again"
            )
        if end > partition.target_next:
            source = self._scan(key, partition.source_next, partition.source_end)
            with closing(source):
                offsets = written(self.cluster, target, partition.target_next, end, source)
            producer.note(key, partition, offsets)
            producer.save()

    def _write(
        self,
        key: TopicPartition,
        partition: RestoredPartition,
        producer: RecordProducer,
        done: int,
        total: int,
    ) -> None:
        start = self.engine.log(*key).view().start_offset
        if start > partition.source_next:
            where = "{}-{}".format(*key)
            self.warn(f"{where}: the records from {partition.source_next} to {start - 1} are gone")
        what = f"restoring {key[0]}/{key[1]}"
        for columns in self._scan(key, partition.source_next, partition.source_end):
            producer.send(key, partition, columns)
            at = int(columns.offsets[-1]) - partition.source_first
            self.progress.report(what, done + at, total)
        producer.finish(key, partition)

    def _complete(self, plan: TopicPlan, state: RestoreState) -> None:
        """Checks that a topic ends where its restored records do."""
        mine = {(plan.target, number): (plan.source, number) for number in plan.here}
        ends = self.cluster.ends(target for target, key in mine.items())
        for target, key in mine.items():
            partition = state.partitions[key]
            if not partition.is_done and ends[target] != partition.target_next:
                where, wanted = "{}-{}".format(*target), partition.target_next
                raise RestoreError(
                    f"{where} of the cluster ends at offset {ends[target]} instead of {wanted}:"
                    " another program writes there"
                )
            partition.is_done = True

    def _rows(self, plan: TopicPlan, state: RestoreState) -> Iterator[RestoredRow]:
        for number in plan.here:
            each = state.partitions[plan.source, number]
            yield RestoredRow(
                plan.source,
                number,
                plan.target,
                each.records,
                each.source_first,
                each.source_next - 1,
                each.target_first,
            )

    def _scan(self, key: TopicPartition, low: int, high: int) -> Generator[Columns]:
        return undamaged(self.engine.log(*key).view().scan(low, high, ahead=True), self.damage)


def _largest_batch(configs: Mapping[str, str]) -> int:
    """Returns how many bytes of records a batch may have: a broker also refuses one that is larger
    than a segment."""
    limits = (configs.get(name) for name in ("max.message.bytes", "segment.bytes"))
    return min(int(limit) for limit in limits if limit is not None)
