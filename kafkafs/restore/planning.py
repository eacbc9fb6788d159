"""What a restore would write, and what stands in its way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafkafs.storage import (
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    ConfigSource,
    Engine,
    Isolation,
    TopicPartition,
    UnknownTopic,
    View,
    is_legal_topic,
    ranges,
)

from .cluster import NewTopicRequest, RestoreError, TargetCluster
from .state import RestoreState

_OF_THE_TOPIC: Final = (ConfigSource.TOPIC, ConfigSource.TOPIC_FILE)


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """Topics of log directories, all but Kafka's own if none is named; `renames`: their new names.
    `since_ms`, `until_ms`: from the first record at or after a time to the first at or after
    another, in ms since 1970."""

    topics: tuple[str, ...] = ()
    renames: Mapping[str, str] | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def selected(self, engine: Engine) -> list[str]:
        """Raises UnknownTopic, or RestoreError if topics cannot be renamed so."""
        there = engine.topics()
        kafkas = (*INTERNAL_TOPICS, METADATA_TOPIC)
        renames = self.renames or {}
        for name in (*self.topics, *renames):
            if name not in there:
                raise UnknownTopic(name, there)
            if name in kafkas:
                what = "its records mean nothing in another cluster; --groups restores offsets"
                raise RestoreError(f"{name} is Kafka's own topic: {what}")
        names = [name for name in there if name not in kafkas]
        names = list(dict.fromkeys(self.topics)) or names
        unused = [name for name in renames if name not in names]
        if unused:
            raise RestoreError(f"{unused[0]} is to be renamed but not restored")
        targets = [renames.get(name, name) for name in names]
        for target in targets:
            if not is_legal_topic(target):
                raise RestoreError(f"{target!r} is not a legal name of a topic")
            if target in kafkas:
                raise RestoreError(f"{target} is Kafka's own topic, which no other may be")
            if targets.count(target) > 1:
                raise RestoreError(f"two topics are to be restored as {target}")
        return names


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic to restore as `target`. `here`: the first offset to restore and the offset to end
    before, of each partition in the directories, out of `partitions`. `configs`: its own ones.
    `largest`: the bytes of the largest partition's segments with records to restore."""

    source: str
    target: str
    partitions: int
    replication: int
    configs: Mapping[str, str]
    here: Mapping[int, tuple[int, int]]
    largest: int

    @property
    def targets(self) -> list[TopicPartition]:
        return [(self.target, number) for number in range(self.partitions)]

    def new_topic(self) -> NewTopicRequest:
        return NewTopicRequest(self.target, self.partitions, self.replication, self.configs)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What stands in the way of restoring a topic; with `refuses`, nothing is written."""

    topic: str
    text: str
    refuses: bool = False

    def __str__(self) -> str:
        return f"{self.topic}: {self.text}"

    def as_json(self) -> dict[str, Any]:
        return {"topic": self.topic, "obstacle": self.text, "refused": self.refuses}


def plans(engine: Engine, cluster: TargetCluster, request: RestoreRequest) -> list[TopicPlan]:
    """Returns what is to be done. Raises what `selected` raises, and what opening partitions
    raises."""
    found = []
    for name in request.selected(engine):
        numbers = engine.partitions_of(name)
        known = engine.metadata().topics.get(name)
        registered = {} if known is None else known.partitions
        replicas = max((len(each.replicas) for each in registered.values()), default=-1)
        views = {number: engine.log(name, number).view() for number in numbers}
        here = {number: span(view, request) for number, view in views.items()}
        sizes = (_size(views[number], *here[number]) for number in numbers)
        found.append(
            TopicPlan(
                name,
                (request.renames or {}).get(name, name),
                max([*registered, *numbers]) + 1,
                min(replicas, len(cluster.broker_ids)),
                own_configs(engine, name),
                here,
                max(sizes, default=0),
            )
        )
    return found


def own_configs(engine: Engine, topic: str) -> dict[str, str]:
    """Returns the configs that were set on the topic itself."""
    resolved = engine.topic_config(topic)
    return {
        name: text
        for name, text in resolved.changed.items()
        if resolved.sources[name] in _OF_THE_TOPIC
    }


def span(view: View, request: RestoreRequest) -> tuple[int, int]:
    """Returns the first offset to restore, and the offset to end before."""
    low, high = view.start_offset, view.bound(Isolation.READ_COMMITTED)
    if request.since_ms is not None:
        found = view.offset_for_time(request.since_ms, Isolation.READ_COMMITTED)
        low = high if found is None else max(low, found)
    if request.until_ms is not None:
        found = view.offset_for_time(request.until_ms, Isolation.READ_COMMITTED)
        high = high if found is None else max(low, found)
    return low, high


def _size(view: View, low: int, high: int) -> int:
    """Returns the bytes of the segments with offsets from `low` to `high`, exclusive."""
    return sum(
        each.size
        for each in view.segments
        if each.base_offset < high and (each.is_active or each.next_base > low)
    )


def obstacles(
    cluster: TargetCluster,
    plan: TopicPlan,
    state: RestoreState | None,
    configs: Mapping[str, str],
) -> Iterator[Obstacle]:
    """Yields what can be seen without reading records; `configs` apply to the target."""
    known = None if state is None else state.targets.get(plan.source)
    there = cluster.topics.get(plan.target)
    if known not in (None, plan.target):
        what = f"the state file says that this topic was restored as {known}"
        yield Obstacle(plan.source, f"{what}; use another one with --state", True)
    elif there is not None and there != plan.partitions:
        what = (
            f"the cluster's topic {plan.target} has {there} partitions instead of {plan.partitions}"
        )
        yield Obstacle(plan.source, f"{what}; restore under another name with --rename", True)
    elif there is not None and known != plan.target:
        starts, ends = cluster.starts(plan.targets), cluster.ends(plan.targets)
        if starts != ends:
            what = f"the cluster's topic {plan.target} is not empty, and no restore has written it"
            yield Obstacle(plan.source, f"{what}; restore under another name with --rename", True)
    elif there is None and known is not None:
        what = f"the cluster's topic {plan.target}, which this restore has begun to write, is gone"
        yield Obstacle(plan.source, f"{what}; remove the state file to begin again", True)
    missing = sorted(set(range(plan.partitions)) - set(plan.here))
    if missing:
        what = f"the log directories do not have the partitions {ranges(missing)}"
        yield Obstacle(
            plan.source, f"{what}; they stay empty unless you add those of other brokers"
        )
    if configs.get("message.timestamp.type") == "LogAppendTime":
        what = "message.timestamp.type is LogAppendTime, so the broker replaces all timestamps"
        yield Obstacle(plan.source, f"{what}; to keep them, set it to CreateTime until restored")
