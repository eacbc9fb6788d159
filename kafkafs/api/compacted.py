"""The preview of `Partition.compacted`: a partition as log compaction would leave it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kafkafs.storage import (
    CompactedView,
    Isolation,
    PreviewRequest,
    SchemaCatalog,
    SegmentGone,
    TopicPartition,
    UnknownPartition,
    broker_config,
    preview,
    retry_if_gone,
)

from .arrow import READ_COMMITTED, arrow_reader, decoded_columns, undamaged

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkafs.storage import Damage, Engine

    from .arrow import Decode


def compacted(engine: Engine, topic: str, partition: int, at_ms: int | None) -> Compacted:
    """Does the work of `Partition.compacted`. Raises UnknownPartition."""
    then = engine if at_ms is None else engine.as_of(at_ms)

    def look() -> Compacted:
        request = _ask(then, (topic, partition)).pinned()
        return Compacted(CompactedView(request, preview(request)), then)

    try:
        return retry_if_gone(look)
    except SegmentGone:
        raise UnknownPartition(topic, partition) from None


def _ask(engine: Engine, key: TopicPartition) -> PreviewRequest:
    return PreviewRequest.of(
        engine.log(*key).view(),
        engine.topic_config(key[0]).config,
        broker_config(engine.configs),
        engine.partition_dir(*key).log_dir.cleaner_offsets.get(key),
        engine.clock.now_ms(),
    )


class Compacted:
    """The partition when `Partition.compacted` was called, without what would be discarded.

    `summary` has the content of `compacted/summary.json` in a mount: records, bytes and segments
    before and after, what is discarded by reason, where compaction stops and why, and whether
    a broker would start now.
    """

    def __init__(self, left: CompactedView, engine: Engine) -> None:
        self._left = left
        self._engine = engine
        self.summary: dict[str, Any] = left.summary()

    def __repr__(self) -> str:
        view, records = self._left.view, self.summary["records"]
        sizes = f"{records['after']} of {records['before']} records"
        return f"<Compacted {view.topic}-{view.partition}, {sizes}>"

    def __contains__(self, offset: int) -> bool:
        """Returns whether the record at `offset`, if there is one, is retained."""
        return self._left.keeps(operator.index(offset))

    def scan(
        self,
        *,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        decode: Decode = False,
        isolation: str = READ_COMMITTED,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> pa.RecordBatchReader:
        """Returns the retained records, as `Partition.scan` does."""
        parts = self._left.scan(start, end, Isolation(isolation), ahead=True)
        view = self._left.view
        decoded = decoded_columns(SchemaCatalog(self._engine), view.topic, decode)
        whole = undamaged(parts, on_damage)
        return arrow_reader(whole, view.topic, view.partition, columns, decoded)
