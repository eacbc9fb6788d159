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
    stay open as long as the tables are used. Raises ValueError if the names of two topics differ
    only by case, which SQL does not distinguish."""
    log_directories = open(log_dirs)
    try:
        names: dict[str, str] = {}
        for topic in log_directories.topics:
            if (other := names.setdefault(topic.lower(), topic)) != topic:
                what = f"topics {other} and {topic} differ only by case"
                raise ValueError(f"{what}, which SQL does not distinguish")
            connection.register(topic, TopicDataset(log_directories, topic, encoded=True))
    except BaseException:
        log_directories.close()
        raise
    return log_directories
