"""What `why.json` of a partition says."""

from __future__ import annotations

from kafkafs.storage.why import why

from .. import render
from ..catalog import Catalog
from ..partition import Partition


def partition_why(catalog: Catalog, partition: Partition) -> bytes:
    """`<topic>/<partition>/why.json`, as of now."""
    view = partition.view()
    key = (partition.topic, partition.number)
    checkpoint = catalog.engine.partition_dir(*key).log_dir.cleaner_offsets.get(key)
    config = catalog.engine.topic_config(partition.topic).config
    return render.status(why(view, config, checkpoint, catalog.clock.now_ms()).as_json())
