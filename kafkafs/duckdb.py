"""Topics as tables of a DuckDB connection."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

from .api import LogDirectories, open
from .sql.dataset import TopicDataset

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def register(
    connection: DuckDBPyConnection, log_dirs: str | PathLike[str] | Sequence[str | PathLike[str]]
) -> LogDirectories:
    """Registers each topic as a table under its name. Returns the log directories, which must
    stay open as long as the tables are used."""
    log_directories = open(log_dirs)
    try:
        for topic in log_directories.topics:
            connection.register(topic, TopicDataset(log_directories, topic))
    except BaseException:
        log_directories.close()
        raise
    return log_directories
