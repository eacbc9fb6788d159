"""Topics as tables of a DuckDB connection."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Final

from .api import LogDirectories, open
from .sql.dataset import TopicDataset

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


#: The first columns of what is registered, in the order in which DuckDB reads them to count rows.
_FIRST: Final = ("partition", "topic")


def register(
    connection: DuckDBPyConnection,
    log_dirs: str | PathLike[str] | Sequence[str | PathLike[str]],
    topics: str | Sequence[str] | None = None,
) -> LogDirectories:
    """Makes each of `topics`, or the one that is named, by default all, a temporary view under its
    name. Returns the log directories, which must stay open as long as the views are used.

    DuckDB asks for the columns at once, so the schemas of all these topics are compiled: name those
    that you need if there are many. The name of a topic with ` (log)` after it stands for the same
    records, with the columns in another order. Raises UnknownTopic, and ValueError if the names of
    two topics differ only by case, which SQL does not distinguish."""
    log_directories = open(log_dirs)
    try:
        names: dict[str, str] = {}
        named = [topics] if isinstance(topics, str) else topics
        for topic in log_directories.topics if named is None else named:
            if (other := names.setdefault(topic.lower(), topic)) != topic:
                what = f"topics {other} and {topic} differ only by case"
                raise ValueError(f"{what}, which SQL does not distinguish")
            log_directories.views(topic)
            dataset = TopicDataset(log_directories, topic, first=_FIRST, encoded=True)
            log = f"{topic} (log)"
            connection.register(log, dataset)
            columns = ", ".join(f'"{name}"' for name in dataset.names)
            query = f'CREATE OR REPLACE TEMP VIEW "{topic}" AS SELECT {columns} FROM "{log}"'
            connection.execute(query)
    except BaseException:
        log_directories.close()
        raise
    return log_directories
