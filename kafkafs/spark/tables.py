"""Carries the options of a table in Spark's catalog to the readers of the table.

Spark passes a table's options only to `DataSource.schema`, when the table is created without
columns. Its readers get the columns and the options of the query (PythonTable ignores the
properties). So the schema stores the table's options in the metadata of the first column, which
the catalog keeps, and a reader finds them there.

Writers do not: `CREATE TABLE … AS SELECT * FROM t` passes the columns of t, with their metadata, to
the writer of the new table, which would append to t.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .option_texts import OptionError
from .options import used_options

#: The name in a column's metadata whose value is the table's options, as a JSON object.
METADATA: Final = "kafkafs.options"

# Set by the catalog in the properties of every table (TableCatalog.PROP_PROVIDER).
_PROVIDER: Final = "provider"
_OPTION_PREFIX: Final = "option."


def is_table(properties: Mapping[str, str]) -> bool:
    """Returns whether `DataSource.options` are the properties of a new table in the catalog."""
    return _PROVIDER in properties


def declared_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the options in a table's properties, which also contain its owner, comment, location
    and TBLPROPERTIES. The path is its location."""
    declared = {
        name.removeprefix(_OPTION_PREFIX): value
        for name, value in properties.items()
        if name.startswith(_OPTION_PREFIX)
    }
    if "path" in properties:
        declared["path"] = properties["path"]
    return declared


def metadata_of(declared: Mapping[str, str]) -> dict[str, str]:
    """Returns the metadata of a table's first column, which contains the table's options. Options
    that are ignored are not stored: they may contain the password for a broker."""
    return {METADATA: json.dumps(used_options(declared))}


def reader_options(
    given: Mapping[str, str], metadata: Iterable[Mapping[str, Any]]
) -> Mapping[str, str]:
    """Returns the options of a read: those of the query, and if these name no directory, those of
    the table, which are in the metadata of its columns. Options of the query take precedence.

    Raises OptionError if there is neither a directory nor a table's options.
    """
    lower = {name.lower(): value for name, value in given.items()}
    if "path" in lower or "paths" in lower:
        return given
    for each in metadata:
        if METADATA in each:
            stored: dict[str, str] = json.loads(each[METADATA])
            return _without_alternatives(stored, lower) | lower
    raise OptionError("path", _NO_PATH)


def _without_alternatives(stored: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of a table by their names in lower case, without those to which `given`
    has an alternative."""
    replaced = {
        name for group in _ALTERNATIVES if not given.keys().isdisjoint(group) for name in group
    }
    lower = {name.lower(): value for name, value in stored.items()}
    return {name: value for name, value in lower.items() if name not in replaced}


# Of each group a read has one option, or one that takes precedence over the others.
_ALTERNATIVES: Final = (
    ("subscribe", "subscribepattern", "assign"),
    ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"),
    ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"),
)
_NO_PATH: Final = (
    'name the log directories, with .load("/data") or with OPTIONS (path "/data"). Spark does not'
    " pass the options of a table whose columns are declared: create the table without columns, or"
    " as a TEMPORARY VIEW"
)
