"""The reader of a stream that cannot start, which raises the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition


class RefusedStreamReader(DataSourceStreamReader):
    """Raises `error` on its first use.

    PySpark 4.1 to 4.3 hides what `DataSource.streamReader` raises: it stops the reader that it did
    not get, and reports an UnboundLocalError.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _refuse(self, *_: object) -> NoReturn:
        raise self._error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._refuse()

    def latestOffset(self, *_: Any) -> dict[str, Any]:  # noqa: N802
        self._refuse()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._refuse()
