"""Log directories as the jobs see them: by absolute paths, opened once in each process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kafkafs.storage import (
    Engine,
    PartitionDir,
    Selected,
    Selection,
    absolute_configs,
    configs_of_both,
    location,
)

from ..read.planning import find_log_dirs

Config = tuple[str, str]


@dataclass(frozen=True, slots=True)
class JobLogDirs:
    """Log directories and the configs of this run; as of `at_ms` (ms since 1970), None for now. Can
    be pickled; every worker must see the directories under the same paths."""

    log_dirs: tuple[str, ...]
    configs: tuple[Config, ...] = ()
    at_ms: int | None = None

    @classmethod
    def of(
        cls,
        log_dirs: str | Sequence[str],
        configs: Mapping[str, str] | None = None,
        at_ms: int | None = None,
    ) -> JobLogDirs:
        """Accepts paths as on a command line: comma-separated, with wildcards, relative."""
        listed = log_dirs.split(",") if isinstance(log_dirs, str) else log_dirs
        paths = find_log_dirs([location(os.fspath(path)) for path in listed])
        return cls(tuple(paths), _absolute(configs), at_ms)

    @classmethod
    def of_both(
        cls,
        log_dirs: str | Sequence[str],
        other: str | Sequence[str],
        configs: Mapping[str, str] | None = None,
    ) -> tuple[JobLogDirs, JobLogDirs]:
        """Accepts two sets of log directories, of which one may have the preferred one."""
        first, second = cls.of(log_dirs), cls.of(other)
        given = dict(_absolute(configs))
        mine, its = configs_of_both(given, first.log_dirs, second.log_dirs)
        return cls.new(first.log_dirs, mine), cls.new(second.log_dirs, its)

    @classmethod
    def new(cls, log_dirs: Sequence[str], configs: Mapping[str, str] | None = None) -> JobLogDirs:
        """Accepts absolute paths, also of directories that do not exist yet."""
        return cls(tuple(log_dirs), _absolute(configs))

    def engine(self) -> Engine:
        """Returns the directories opened for reading; tasks in the same process share the engine.
        Raises LogDirError or ConfigError."""
        return _engine(self)

    def partitions(self, topics: Sequence[Selected] = ()) -> list[PartitionDir]:
        """Returns the directories of the selected partitions, or of all, by topic and number.
        Raises UnknownTopic or UnknownPartition."""
        engine = self.engine()
        return [
            engine.partition_dir(*key)
            for key in Selection(tuple(topics)).partitions(engine.topics())
        ]


def _absolute(configs: Mapping[str, str] | None) -> tuple[Config, ...]:
    return tuple(sorted(absolute_configs((configs or {}).items()).items()))


@lru_cache(maxsize=4)
def _engine(dirs: JobLogDirs) -> Engine:
    return Engine(dirs.log_dirs, dict(dirs.configs), dirs.at_ms)
