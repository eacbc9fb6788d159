"""Parses the names of Redpanda's directories and segments (`storage/fs_utils.h`).

`<namespace>/<topic>/<partition>_<revision>/<base offset>-<term>-v1.log`. As of Kafka's names, only
those that Redpanda itself would write are parsed.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ..format.layout import MAX_INT32, MAX_OFFSET

#: The namespace of the topics that clients see, `__consumer_offsets` among them.
KAFKA_NAMESPACE: Final = "kafka"
#: The version of the record format; there is no other so far.
RECORD_VERSION: Final = "v1"
LOG_SUFFIX: Final = ".log"

_NUMBER: Final = r"(0|[1-9][0-9]{0,18})"
_PARTITION: Final = re.compile(f"{_NUMBER}_{_NUMBER}")
_SEGMENT: Final = re.compile(rf"{_NUMBER}-{_NUMBER}-(v[0-9]+)\.log")


class PartitionName(NamedTuple):
    """The name of a partition's directory. The revision is a greater one when a topic is created
    again, or the partition returns to the broker."""

    partition: int
    revision: int


class SegmentName(NamedTuple):
    """The name of a segment: Redpanda's offset of its first batch, and the term of its leader."""

    base_offset: int
    term: int
    version: str


def parse_partition(name: str) -> PartitionName | None:
    """Returns None for what is not the name of a partition's directory."""
    match = _PARTITION.fullmatch(name)
    if match is None or int(match[1]) > MAX_INT32:
        return None
    return PartitionName(int(match[1]), int(match[2]))


def parse_segment(name: str) -> SegmentName | None:
    """Returns None for what is not the name of a segment, of whatever version."""
    match = _SEGMENT.fullmatch(name)
    if match is None or int(match[1]) >= MAX_OFFSET or int(match[2]) > MAX_OFFSET:
        return None
    return SegmentName(int(match[1]), int(match[2]), match[3])
