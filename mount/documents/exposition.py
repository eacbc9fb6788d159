"""`.kafkafs/metrics`: the mount's metrics in Prometheus' text format.

Names and units follow Prometheus' conventions, with Kafka's terms. Collecting reads nothing
additional from the disk: a read-only mount covers the partitions that were opened, a writable one
covers all, from memory.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Final

from kafkafs.storage import COMPACT, REMOTE_COUNTS, Engine, StorageError, TopicPartition, printable

from ..catalog import Catalog
from ..monitoring.metrics import BOUNDS
from .status import Sized, dirty_ratio

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from kafkafs.storage import LogManager

# Bounds the size of the text.
_MAX_PARTITIONS: Final = 10_000

_LABELS: Final = ("topic", "partition")


def exposition(catalog: Catalog) -> bytes:
    """Returns the text in Prometheus' format 0.0.4."""
    # This import is slow, and the metrics of most mounts are never read.
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.registry import Collector

    class Collected(Collector):
        def collect(self) -> Iterable[Metric]:
            return _families(catalog)

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(Collected())
    return generate_latest(registry)


def _families(catalog: Catalog) -> Iterator[Metric]:
    yield from _requests(catalog)
    yield from _caches(catalog)
    yield from _remote()
    topics = catalog.topics()
    yield _gauge("topics", "Topics in the log directories.", len(topics))
    yield _gauge("partitions", "Partitions of these topics.", sum(map(len, topics.values())))
    yield _gauge("problems", "Lines of problems in status.json.", len(catalog.problems))
    if catalog.changes is None:
        yield from _logs(_opened(catalog))
        return
    engine = catalog.changes.engine
    yield from _tasks(engine)
    uncleanable = len(engine.cleaner.uncleanable)
    yield _gauge("uncleanable_partitions", "Logs that are not cleaned any more.", uncleanable)
    yield from _logs(_written(engine))


def _gauge(name: str, documentation: str, value: float) -> Metric:
    from prometheus_client.metrics_core import GaugeMetricFamily

    return GaugeMetricFamily(f"kafkafs_{name}", documentation, value)


def _counter(name: str, documentation: str, value: float) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily

    return CounterMetricFamily(f"kafkafs_{name}", documentation, value)


# -- requests -------------------------------------------------------------------------------------


def _requests(catalog: Catalog) -> Iterator[Metric]:
    from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily

    metrics = catalog.metrics
    seconds = HistogramMetricFamily(
        "kafkafs_request_seconds",
        "Requests of the kernel by operation, and how long their answers took; reads of follow and "
        "control include waiting for data.",
        labels=["operation"],
    )
    names = [*map(str, BOUNDS), "+Inf"]
    for operation, durations in sorted(metrics.requests.items()):
        buckets = list(zip(names, accumulate(durations.counts), strict=True))
        seconds.add_metric([operation], buckets, durations.seconds)
    yield seconds
    errors = CounterMetricFamily(
        "kafkafs_request_errors",
        "Requests that were answered with an error.",
        labels=["operation", "errno"],
    )
    for (operation, number), count in sorted(metrics.errors.items()):
        errors.add_metric([operation, errno.errorcode.get(number, str(number))], count)
    yield errors
    yield _counter("read_bytes", "Bytes returned to the kernel.", metrics.bytes_read)
    yield _counter("written_bytes", "Bytes received from the kernel.", metrics.bytes_written)
    yield _gauge("open_files", "Files open in the mount.", metrics.open_files())
    yield _gauge("open_directories", "Directories open in the mount.", metrics.open_directories())


def _caches(catalog: Catalog) -> Iterator[Metric]:
    context = catalog.engine.context
    batches = context.batches
    yield _counter("batch_cache_hits", "Decoded batches found in the cache.", batches.hits)
    yield _counter("batch_cache_misses", "Decoded batches not in the cache.", batches.misses)
    yield _gauge("batch_cache_bytes", "Bytes of decoded batches in the cache.", batches.nbytes)
    yield _gauge("segment_files_open", "Segment files that are open.", len(context.files))


def _remote() -> Iterator[Metric]:
    """The requests to servers of log directories that are URLs; nothing if there were none."""
    from prometheus_client.metrics_core import CounterMetricFamily

    if not REMOTE_COUNTS.requests:
        return
    sent = CounterMetricFamily(
        "kafkafs_remote_requests",
        "Requests to servers of log directories, with repeated ones.",
        labels=["operation"],
    )
    for operation, count in sorted(REMOTE_COUNTS.requests.items()):
        sent.add_metric([operation], count)
    yield sent
    yield _counter(
        "remote_retries", "Requests that failed and were repeated.", REMOTE_COUNTS.retries
    )
    yield _counter("remote_failures", "Requests that failed for good.", REMOTE_COUNTS.failures)
    yield _counter("remote_read_bytes", "Bytes that servers sent.", REMOTE_COUNTS.read_bytes)


# -- tasks ----------------------------------------------------------------------------------------


def _tasks(engine: LogManager) -> Iterator[Metric]:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    runs = CounterMetricFamily(
        "kafkafs_task_runs", "Runs of background tasks that ended.", labels=["task"]
    )
    failures = CounterMetricFamily(
        "kafkafs_task_failures", "Runs that could not do all their work.", labels=["task"]
    )
    seconds = CounterMetricFamily("kafkafs_task_seconds", "Time that runs took.", labels=["task"])
    running = GaugeMetricFamily("kafkafs_task_running", "1 while it runs.", labels=["task"])
    paused = GaugeMetricFamily("kafkafs_task_paused", "1 while it is paused.", labels=["task"])
    for task in engine.task_status():
        runs.add_metric([task.name], task.runs)
        failures.add_metric([task.name], task.failures)
        seconds.add_metric([task.name], task.seconds)
        running.add_metric([task.name], task.is_running)
        paused.add_metric([task.name], task.is_paused)
    yield from (runs, failures, seconds, running, paused)


# -- logs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The values reported for a partition. `size`: bytes of its `.log` files; `dirty_ratio`: None
    if it is not compacted."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size: int
    segments: int
    dirty_ratio: float | None


def _facts(
    key: TopicPartition,
    start_offset: int,
    end_offset: int,
    segments: Sequence[Sized],
    first_dirty: int | None,
) -> LogFacts:
    """`first_dirty`: -1 for a log that was never cleaned, None for one that is not compacted."""
    size = sum(segment.size for segment in segments)
    ratio = None if first_dirty is None else dirty_ratio(segments[:-1], first_dirty)
    return LogFacts(*key, start_offset, end_offset, size, len(segments), ratio)


def _first_dirty(engine: Engine, key: TopicPartition) -> int:
    return engine.partition_dir(*key).log_dir.cleaner_offsets.get(key, -1)


def _written(engine: LogManager) -> Iterator[LogFacts]:
    """Yields the facts of the partitions that are open for writing, without reading the disk."""
    for key, writer in islice(engine.writers().items(), _MAX_PARTITIONS):
        state = writer.retention_state()
        first_dirty = None
        if COMPACT in writer.config.cleanup_policy:
            first_dirty = _first_dirty(engine, key)
        yield _facts(key, state.start_offset, state.end_offset, state.segments, first_dirty)


def _opened(catalog: Catalog) -> Iterator[LogFacts]:
    """Yields the facts of the partitions opened so far, without those that cannot be read."""
    engine = catalog.engine
    for log in islice(engine.opened(), _MAX_PARTITIONS):
        key = (log.topic, log.partition)
        try:
            view = log.view()
            first_dirty = None
            if COMPACT in engine.topic_config(log.topic).config.cleanup_policy:
                first_dirty = _first_dirty(engine, key)
        except (StorageError, OSError):
            continue
        yield _facts(key, view.start_offset, view.end_offset, view.segments, first_dirty)


def _logs(found: Iterator[LogFacts]) -> Iterator[Metric]:
    from prometheus_client.metrics_core import GaugeMetricFamily

    start, end, size, segments, dirty = families = [
        GaugeMetricFamily(f"kafkafs_log_{name}", documentation, labels=_LABELS)
        for name, documentation in (
            ("start_offset", "Log start offset."),
            ("end_offset", "Log end offset."),
            ("size_bytes", "Bytes of the .log files."),
            ("segments", "Segments, including the active one."),
            ("dirty_ratio", "Share of a compacted log's rolled segments not cleaned yet."),
        )
    ]
    for each in found:
        labels = [printable(each.topic), str(each.partition)]
        start.add_metric(labels, each.start_offset)
        end.add_metric(labels, each.end_offset)
        size.add_metric(labels, each.size)
        segments.add_metric(labels, each.segments)
        if each.dirty_ratio is not None:
            dirty.add_metric(labels, each.dirty_ratio)
    yield from families
