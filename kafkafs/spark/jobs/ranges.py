"""Which ranges of offsets a job reads that reads records: planned as a read is."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..options import Options
from ..planning import INTERNAL_TOPICS
from .places import Choice, Place


def options_for(place: Place, topics: Sequence[Choice], isolation: str) -> Options:
    """Those of a read of the partitions chosen, without a choice of all but Kafka's own topics."""
    assigned: dict[str, list[int]] = {}
    for found in place.partitions(topics):
        if topics or found.topic not in INTERNAL_TOPICS:
            assigned.setdefault(found.topic, []).append(found.partition)
    given = {"paths": json.dumps(place.log_dirs), "kafka.isolation.level": isolation}
    if assigned:
        given["assign"] = json.dumps(assigned)
    else:
        given["subscribePattern"] = "(?!)"  # nothing
    return Options.parse({**given, **dict(place.settings)})
