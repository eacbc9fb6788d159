"""Log directories as the jobs see them: by absolute paths, opened once in each process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kafkafs.storage.choice import choose
from kafkafs.storage.durable import TEMPORARY_SUFFIX, WritableDirectory
from kafkafs.storage.engine import Engine
from kafkafs.storage.local_path import local_path
from kafkafs.storage.log_dir import PartitionDir

from ..planning import find_log_dirs

Choice = tuple[str, int | None]  # a topic, and one of its partitions or all
Setting = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Place:
    """Log directories, and the settings of this run. Can be pickled; every worker must see the
    directories by the same paths."""

    log_dirs: tuple[str, ...]
    settings: tuple[Setting, ...] = ()

    @classmethod
    def of(cls, log_dirs: str | Sequence[str], settings: Mapping[str, str] | None = None) -> Place:
        """Of paths as on a command line: joined by commas, with wildcards, relative ones."""
        listed = log_dirs.split(",") if isinstance(log_dirs, str) else log_dirs
        paths = find_log_dirs([local_path(os.fspath(path)) for path in listed])
        return cls(tuple(paths), tuple(sorted((settings or {}).items())))

    def engine(self) -> Engine:
        """The directories opened for reading; tasks that follow each other share it. LogDirError,
        ConfigError."""
        return _engine(self)

    def partitions(self, chosen: Sequence[Choice] = ()) -> list[PartitionDir]:
        """The directories of the partitions chosen, of all without a choice, by topic and number.
        UnknownTopic, UnknownPartition."""
        engine = self.engine()
        return [engine.partition_dir(*key) for key in choose(engine.topics(), chosen)]


@lru_cache(maxsize=4)
def _engine(place: Place) -> Engine:
    return Engine(place.log_dirs, dict(place.settings))


def replace_file(directory: WritableDirectory, name: str, data: bytes) -> None:
    """Makes `data` the content of the file, durably and in one step. Attempts of one task may do
    so at the same time: each has a file of its own until then, whose name begins with a dot."""
    temporary = f".{name}.{os.getpid()}.{os.urandom(4).hex()}{TEMPORARY_SUFFIX}"
    file = directory.create(temporary)
    file.write(0, data)
    file.sync()
    directory.rename(temporary, name)
    directory.sync()
