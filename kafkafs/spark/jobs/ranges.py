"""Selects the partitions for jobs that read records; their offset ranges are planned as for a
read."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kafkafs.storage import Selected

from ..options import ReadOptions
from ..read.planning import UNASKED_TOPICS
from .job_log_dirs import JobLogDirs


def options_for(dirs: JobLogDirs, topics: Sequence[Selected], isolation: str) -> ReadOptions:
    """Returns the options of a read of the selected partitions, by default all but those of Kafka's
    internal topics."""
    assigned: dict[str, list[int]] = {}
    for found in dirs.partitions(topics):
        if topics or found.topic not in UNASKED_TOPICS:
            assigned.setdefault(found.topic, []).append(found.partition)
    given = {"paths": json.dumps(dirs.log_dirs), "kafka.isolation.level": isolation}
    if assigned:
        given["assign"] = json.dumps(assigned)
    else:
        given["subscribePattern"] = "(?!)"  # matches nothing
    if dirs.at_ms is not None:
        given["at"] = str(dirs.at_ms)
    return ReadOptions.parse({**given, **dict(dirs.configs)})
