"""What records of a topic show to stand in the way of restoring them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from kafkafs.storage import KEY_SIZE, NO_TIMESTAMP, VALUE_SIZE, Columns, time_text

from .planning import Obstacle, TopicPlan
from .records import REPLACED_TIMESTAMP

_UNLIMITED: Final = 1 << 62
# What a record needs in a batch besides key and value, without headers.
_RECORD_OVERHEAD: Final = 100


@dataclass(slots=True)
class RecordFacts:
    """What records of a topic have that a cluster may refuse, replace or delete: the `oldest` and
    `newest` timestamps in ms since 1970, -1 for none; the bytes of key and value of the `largest`;
    the number of those whose timestamp librdkafka replaces, and of those without a key."""

    records: int = 0
    oldest: int = -1
    newest: int = -1
    largest: int = 0
    replaced: int = 0
    keyless: int = 0

    def add(self, columns: Columns) -> int:
        """Adds records; returns the bytes of their keys and values."""
        self.records += len(columns)
        stamps = columns.timestamps[columns.timestamps != NO_TIMESTAMP]
        if len(stamps):
            oldest = int(stamps.min())
            self.oldest = oldest if self.oldest < 0 else min(self.oldest, oldest)
            self.newest = max(self.newest, int(stamps.max()))
        self.replaced += int(np.count_nonzero(stamps == REPLACED_TIMESTAMP))
        self.keyless += int(np.count_nonzero(columns.spans[:, KEY_SIZE] < 0))
        sizes = np.maximum(columns.spans[:, [KEY_SIZE, VALUE_SIZE]], 0).sum(axis=1, dtype=np.int64)
        self.largest = max(self.largest, int(sizes.max(initial=0)))
        return int(sizes.sum())


def record_obstacles(
    plan: TopicPlan, found: RecordFacts, configs: Mapping[str, str], now: int
) -> Iterator[Obstacle]:
    """Yields what a topic's configs in the cluster do to its records at a time `now`, in ms since
    1970."""
    if not found.records:
        return
    create = f"create the topic {plan.target} beforehand, or change it,"
    for what, how in _deleted(plan, found, configs, now):
        yield Obstacle(plan.source, f"{what}: the broker deletes such records soon; {create} {how}")
    for what, how in _refused(found, configs, now):
        yield Obstacle(plan.source, f"{what}: the broker refuses it; {create} {how}", True)
    if found.largest + _RECORD_OVERHEAD > _limit(configs, "max.message.bytes"):
        what = f"a record has {found.largest} bytes, more than max.message.bytes allows"
        yield Obstacle(plan.source, f"{what} unless it is compressed; {create} with a larger value")
    if found.replaced and _is_kept(configs):
        what = f"{found.replaced} records have the timestamp 0, which librdkafka replaces"
        yield Obstacle(plan.source, f"{what} by the current time")


def _deleted(
    plan: TopicPlan, found: RecordFacts, configs: Mapping[str, str], now: int
) -> Iterator[tuple[str, str]]:
    """Yields why the broker deletes records, and what to do."""
    if "delete" not in configs.get("cleanup.policy", "delete"):
        return
    is_old = found.oldest >= 0 and now - found.oldest > _limit(configs, "retention.ms")
    if is_old and _is_kept(configs):
        what = f"a record is of {time_text(found.oldest)}, older than retention.ms"
        yield what, "with a longer retention.ms"
    if plan.largest > _limit(configs, "retention.bytes"):
        what = f"a partition has {plan.largest} bytes, more than retention.bytes"
        yield what, "with a larger retention.bytes"


def _refused(found: RecordFacts, configs: Mapping[str, str], now: int) -> Iterator[tuple[str, str]]:
    """Yields why the broker refuses a record, and what to do."""
    if found.oldest >= 0 and _is_kept(configs):
        if now - found.oldest > _limit(configs, "message.timestamp.before.max.ms"):
            oldest = time_text(found.oldest)
            what = f"a record is of {oldest}, before message.timestamp.before.max.ms"
            yield what, "with a larger value"
        if found.newest - now > _limit(configs, "message.timestamp.after.max.ms"):
            newest = time_text(found.newest)
            what = f"a record is of {newest}, after message.timestamp.after.max.ms"
            yield what, "with a larger value"
    if found.keyless and "compact" in configs.get("cleanup.policy", ""):
        yield "a record has no key, and cleanup.policy is compact", "with cleanup.policy=delete"


def _is_kept(configs: Mapping[str, str]) -> bool:
    """Whether the broker keeps the timestamps of producers."""
    return configs.get("message.timestamp.type") != "LogAppendTime"


def _limit(configs: Mapping[str, str], name: str) -> int:
    value = int(configs.get(name, -1))
    return _UNLIMITED if value < 0 else value
