"""What `kafkafs sql` makes of the results of queries, and its shell."""

from __future__ import annotations

from typing import Final

#: The formats of results.
FORMATS: Final = ("table", "csv", "json", "jsonl", "arrow", "parquet", "markdown")
#: Those of which a file holds only one result.
SINGLE: Final = frozenset(("json", "arrow", "parquet"))
#: Those that are no text.
BINARY: Final = frozenset(("arrow", "parquet"))
#: The formats of files by the ends of their names.
SUFFIXES: Final = {f".{name}": name for name in FORMATS if name != "table"} | {
    ".md": "markdown",
    ".ndjson": "jsonl",
}
