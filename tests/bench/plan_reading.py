"""Plans the read of a topic, in a process that does nothing else: as Spark does it."""

from __future__ import annotations

import resource
import sys
import time

from kafkafs.spark.options import ReadOptions
from kafkafs.spark.read.planning import grouped, plan
from kafkafs.spark.workers import spare_collections, without_collections


def main(log_dir: str, topic: str) -> None:
    """Prints the seconds, the peak memory in KiB of this process and its children together (what
    they share counts twice), and the number of ranges."""
    spare_collections()
    options = ReadOptions.parse({"path": log_dir, "subscribe": topic})
    started = time.perf_counter()
    with without_collections():
        ranges = plan([log_dir], options, may_fork=True)
    grouped(ranges, options)
    taken = time.perf_counter() - started
    who = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    print(taken, sum(resource.getrusage(each).ru_maxrss for each in who), len(ranges))


if __name__ == "__main__":
    main(*sys.argv[1:])
