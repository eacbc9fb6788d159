"""Renders `why.json` of a partition, which explains retention and compaction."""

from __future__ import annotations

from kafkafs.storage.io.retry import look_again
from kafkafs.storage.operations.why import Why, why

from ..catalog import Catalog
from ..partition import MountedPartition
from ..vfs import render


def partition_why(catalog: Catalog, partition: MountedPartition) -> bytes:
    """Returns `<topic>/<partition>/why.json` as of now."""
    key = (partition.topic, partition.number)

    def look() -> Why:
        view = partition.view()
        checkpoint = catalog.engine.partition_dir(*key).log_dir.cleaner_offsets.get(key)
        config = catalog.engine.topic_config(partition.topic).config
        return why(view, config, checkpoint, catalog.clock.now_ms())

    return render.status(look_again(look).as_json())
