"""The amounts of data and repetitions of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """`records` in the large logs; `repetitions` that count, of each contender; `listed` records in
    the directory that is listed; `partitions` of `segments` segments for opening a large broker's
    directory; `recovered` MiB of an unclean segment; `opened` files that one repetition of a cold
    read opens; `gibibytes` of the sparse log in which `lookups` records are looked up; `appended`
    records in one run of appends; `compacted` records with `keys` different keys to compact;
    `mapped` keys in the offset map; `spread` records to compact with Spark; `planned` GiB in each
    partition whose compaction is planned; `removed` names in one `rm`; `commits` of offsets;
    `small` partitions that Spark reads, a tenth of those whose read it plans."""

    records: int = 8_000_000
    repetitions: int = 5
    listed: int = 1_000_000
    partitions: int = 1000
    segments: int = 100
    recovered: int = 1024
    opened: int = 5000
    gibibytes: int = 1000
    lookups: int = 2000
    appended: int = 2_000_000
    compacted: int = 10_000_000
    keys: int = 1_000_000
    mapped: int = 45_000_000
    spread: int = 8_000_000
    planned: int = 1024
    removed: int = 10_000
    commits: int = 1_000_000
    small: int = 10_000
