"""`.kafkafs/metrics` counts correctly and can be parsed by Prometheus."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kafkafs.mount.catalog import Catalog
from kafkafs.mount.documents.exposition import exposition
from kafkafs.mount.monitoring.metrics import BOUNDS, Metrics
from kafkafs.mount.tree import Tree
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.mount.nodes import writable_tree

Labels = frozenset[tuple[str, str]]


def samples(catalog: Catalog) -> dict[str, dict[Labels, float]]:
    """Returns the values by name and labels."""
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(exposition(catalog).decode()):
        assert family.documentation
        for sample in family.samples:
            of_name = found.setdefault(sample.name, {})
            labels = frozenset(sample.labels.items())
            assert labels not in of_name
            of_name[labels] = sample.value
    return found


def value(found: Mapping[str, Mapping[Labels, float]], name: str, **labels: str) -> float:
    return found[name][frozenset(labels.items())]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A compacted topic a with two segments, and an empty topic b."""
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("a", configs={"cleanup.policy": "compact"})
        engine.create_topic("b", 2)
        for text in (b"one", b"two"):
            engine.writer("a", 0).append_records(RecordColumns.from_values([text], [b"key"]))
            if text == b"one":
                engine.writer("a", 0).roll()
    return tmp_path / "data"


@given(st.lists(st.floats(min_value=0, max_value=1000)))
def test_every_request_is_in_the_buckets_that_are_long_enough(durations: list[float]) -> None:
    metrics = Metrics()
    for seconds in durations:
        metrics.add("read", seconds)
    if not durations:
        assert metrics.requests == {}
        return
    counted = metrics.requests["read"]
    assert sum(counted.counts) == len(durations)
    assert counted.seconds == pytest.approx(sum(durations))
    for at, bound in enumerate(BOUNDS):
        # Durations are truncated to microseconds, so a bucket ends just below its bound.
        assert sum(counted.counts[: at + 1]) == sum(
            int(each * 1e6) < bound * 1e6 for each in durations
        )


def test_requests_errors_and_bytes(data: Path) -> None:
    catalog = Tree(Engine(str(data))).catalog
    metrics = catalog.metrics
    for seconds in (0.5e-6, 3e-6, 100.0):
        metrics.add("lookup", seconds)
    metrics.errors["lookup", errno.ENOENT] += 2
    metrics.bytes_read, metrics.bytes_written = 5, 7
    metrics.open_files, metrics.open_directories = (lambda: 3), (lambda: 4)
    found = samples(catalog)
    assert value(found, "kafkafs_request_seconds_count", operation="lookup") == 3
    assert value(found, "kafkafs_request_seconds_sum", operation="lookup") == pytest.approx(
        100.0000035
    )
    bucket = "kafkafs_request_seconds_bucket"
    assert value(found, bucket, operation="lookup", le="1e-06") == 1
    assert value(found, bucket, operation="lookup", le="4e-06") == 2
    assert value(found, bucket, operation="lookup", le="+Inf") == 3
    errors = "kafkafs_request_errors_total"
    assert value(found, errors, operation="lookup", errno="ENOENT") == 2
    assert (
        value(found, "kafkafs_read_bytes_total"),
        value(found, "kafkafs_written_bytes_total"),
    ) == (5, 7)
    assert (value(found, "kafkafs_open_files"), value(found, "kafkafs_open_directories")) == (3, 4)
    assert value(found, "process_open_fds") > 0


def test_a_mount_that_reads_tells_of_the_partitions_that_were_opened(data: Path) -> None:
    tree = Tree(Engine(str(data)))
    found = samples(tree.catalog)
    assert (value(found, "kafkafs_topics"), value(found, "kafkafs_partitions")) == (2, 3)
    assert "kafkafs_log_end_offset" not in found
    assert "kafkafs_task_runs_total" not in found
    view = tree.catalog.engine.log("a", 0).view()
    list(view.scan())
    list(view.scan())
    found = samples(tree.catalog)
    assert len(found["kafkafs_log_end_offset"]) == 1
    assert value(found, "kafkafs_log_start_offset", topic="a", partition="0") == 0
    assert value(found, "kafkafs_log_end_offset", topic="a", partition="0") == 2
    assert value(found, "kafkafs_log_segments", topic="a", partition="0") == 2
    size = sum(path.stat().st_size for path in (data / "a-0").glob("*.log"))
    assert value(found, "kafkafs_log_size_bytes", topic="a", partition="0") == size
    assert value(found, "kafkafs_log_dirty_ratio", topic="a", partition="0") == 1


def test_batches_found_and_not_found(data: Path) -> None:
    tree = Tree(Engine(str(data)))
    batches = tree.catalog.engine.context.batches
    for _ in range(3):
        tree.resolve("a/0/offset/1.json")
    found = samples(tree.catalog)
    hits, misses = batches.hits, batches.misses
    assert value(found, "kafkafs_batch_cache_hits_total") == hits
    assert value(found, "kafkafs_batch_cache_misses_total") == misses > 0
    assert value(found, "kafkafs_batch_cache_bytes") == batches.nbytes


def test_a_writable_mount_tells_of_all_partitions_and_of_tasks(data: Path) -> None:
    with LogManager(str(data)) as engine:
        catalog = writable_tree(engine).catalog
        engine.run("retention")
        engine.pause("cleaner")
        found = samples(catalog)
        assert len(found["kafkafs_log_end_offset"]) == 3
        assert value(found, "kafkafs_log_end_offset", topic="b", partition="1") == 0
        assert value(found, "kafkafs_log_dirty_ratio", topic="a", partition="0") == 1
        assert len(found["kafkafs_log_dirty_ratio"]) == 1
        assert value(found, "kafkafs_task_runs_total", task="retention") == 1
        assert value(found, "kafkafs_task_failures_total", task="retention") == 0
        assert value(found, "kafkafs_task_seconds_total", task="retention") > 0
        assert value(found, "kafkafs_task_paused", task="cleaner") == 1
        assert value(found, "kafkafs_task_running", task="cleaner") == 0
        assert value(found, "kafkafs_uncleanable_partitions") == 0
        engine.cleaner.uncleanable["a", 0] = "damaged"
        found = samples(catalog)
        assert value(found, "kafkafs_uncleanable_partitions") == 1
        assert value(found, "kafkafs_problems") == 1
