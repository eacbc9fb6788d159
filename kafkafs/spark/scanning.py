"""Reads only the columns and records that a caller names: `kafkafs.spark.scan`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import DataType, StructType

from .option_texts import OptionError
from .options import ReadOptions
from .read.conditions import ANYTHING, Conditions, conditions_of, names_in
from .read.decoding import KEYS, VALUES, Decoding
from .source import COLUMNS, KafkafsSource, fields_of, known_columns

_SHOWN = 200  # characters of paths and options in a plan


def scan_of(
    spark: SparkSession,
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    columns: Sequence[str] | None,
    where: str | None,
    options: dict[str, str],
) -> DataFrame:
    """Implements `kafkafs.spark.scan`."""
    paths = [os.fspath(each) for each in ([path] if isinstance(path, str | os.PathLike) else path)]
    known, decoding = _known(paths, options)
    names = _checked(columns, known)
    read, conditions = names, ANYTHING
    if where is not None:
        used = names_in(where)
        read = [name for name in known if name in names or used is None or name.lower() in used]
        conditions = conditions_of(where, partial(_instant, spark))
    source = _source(_description(paths, options, conditions), conditions)
    spark.dataSource.register(source)
    schema = StructType(fields_of({name: known[name] for name in read}, decoding))
    frame = spark.read.format(source.name()).options(**options).schema(schema).load(paths)
    return frame.select(*names) if where is None else frame.where(where).select(*names)


def _known(
    paths: Sequence[str], options: dict[str, str]
) -> tuple[dict[str, DataType], Decoding | None]:
    """Returns the columns of the scan, and how values and keys are decoded."""
    if not {VALUES.option.lower(), KEYS.option.lower()} & {name.lower() for name in options}:
        return COLUMNS, None  # Spark checks the options
    parsed = ReadOptions.parse({**options, "paths": json.dumps(list(paths))})
    decoding = Decoding.of(parsed)
    return known_columns(parsed, decoding), decoding


def _checked(columns: Sequence[str] | None, known: Mapping[str, DataType]) -> list[str]:
    names = [name for name in known if name != "headers"] if columns is None else list(columns)
    for name in names:
        if name not in known:
            raise OptionError("columns", f"no column {name}; there are {', '.join(known)}")
    if not names or isinstance(columns, str):
        raise OptionError("columns", "must be a list of names, with at least one")
    return names


def _instant(spark: SparkSession, literal: str) -> int | None:
    """Returns what Spark takes a literal for if it is compared with a timestamp, in microseconds
    since 1970; None if it is no timestamp."""
    try:
        row = spark.sql(f"SELECT unix_micros(CAST({literal} AS TIMESTAMP))").head()
    except PySparkException:  # Spark reports it where it applies the filter
        return None
    return None if row is None else row[0]


def _description(paths: list[str], options: dict[str, str], conditions: Conditions) -> str:
    """Returns the name by which plans show the scan. It is different for different conditions: a
    session finds them by the name, whatever its case."""
    text = ",".join(paths) + "".join(f" {name}={value}" for name, value in options.items())
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    if conditions == ANYTHING:
        return f"kafkafs {text}"
    digest = hashlib.sha256(repr(_key(conditions)).encode()).hexdigest()[:16]
    return f"kafkafs {text} where {str(conditions)[:_SHOWN]} #{digest}"


def _key(conditions: Conditions) -> tuple[object, ...]:
    sets = (conditions.topics, conditions.numbers)
    named = tuple(None if each is None else sorted(each) for each in sets)
    return *named, conditions.partitions, conditions.offsets, conditions.from_ms


def _source(description: str, conditions: Conditions) -> type[KafkafsSource]:
    """Returns the format of one scan. Spark pickles the class, with the variables it refers to."""

    class Scan(KafkafsSource):
        @classmethod
        def name(cls) -> str:
            return description

        def reader(self, schema: StructType) -> DataSourceReader:
            return self.reader_of(schema, conditions)

    return Scan
