"""A DuckDB in this process whose tables are the topics of log directories, and what describes
them. Queries reach nothing else: no other file, no network, no Python object."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os.path import dirname, join
from typing import Any, Final, Self

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from kafkafs.storage import (
    RECORD_SCHEMA,
    Engine,
    ProgressListener,
    SchemaError,
    StorageError,
    did_you_mean,
    fresh,
)

from ..api import LogDirectories
from ..api.arrow import READ_COMMITTED
from .dataset import ScanPlan, TopicDataset
from .system_tables import SYSTEM_TABLES, OnFailed, SystemTable

#: The schema that always has the system tables, also if a topic has the name of one.
SYSTEM_SCHEMA: Final = "kafkafs"
# Rows of the record batches of a result.
_RESULT_ROWS: Final = 1 << 14
_HOME: Final = "USE memory.main"
# DuckDB reads the first column to count rows; the partition of each is known without decoding it.
_FIRST: Final = ("partition", "topic")
# Runs of characters that names of topics consist of, and words. What a query names is among them.
_NAMES: Final = re.compile(r"[A-Za-z0-9._-]+")
_WORDS: Final = re.compile(r"\w+")
# A query with one of these words may list tables that it does not name.
_LISTING: Final = re.compile(
    r"\b((pragma_)?show|information_schema|pg_|sqlite_|duckdb_(views|columns|tables)\b"
    r"|(describe|desc)\s*([;)]|$))",
    re.I,
)
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_COMMENTS: Final = re.compile(r"\s+|--[^\n]*\n?|/\*.*?\*/", re.S)
_RETURNING: Final = re.compile(r"\breturning\b", re.I)
_EXPLAIN: Final = re.compile(r"explain\s+(\([^)]*\)\s*|analyze\s+)*", re.I)
_UNKNOWN_TABLE: Final = re.compile(r"Table with name (.+?) does not exist!")
# In the message of a query that would write more than the file system of its files has free.
_NO_SPACE: Final = "max_temp_directory_size"
_NO_DECODED: Final = re.compile(r'column "?decode')
_EXCERPT: Final = re.compile(r"\n\s*\nLINE (\d+): (.*)\n( *)\^", re.S)
_NOT_CHANGED: Final = "configuration has been locked"
# What DuckDB advises if there is too little memory.
_MEMORY_ADVICE: Final = re.compile(r"\s*Possible solutions:.*", re.S)
# Words of SQL that are names of columns, too.
_RESERVED: Final = re.compile(r"(?<![\"'\w])offset(?![\"'\w])", re.I)

_Kind = duckdb.StatementType
_Answer = duckdb.ExpectedResultType


class QueryError(Exception):
    """A query is wrong, or cannot be answered. The message is one line, with the position in the
    query if DuckDB tells it."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a text. `is_explain`: its result is a plan."""

    text: str
    answers: bool
    is_explain: bool
    ends_transaction: bool


class Session:
    """Runs statements, one at a time. `with` closes it, and removes what it spilled.

    `isolation` as in `Partition.scan`. `files`: statements may read and write files, and load
    extensions. `on_failed` is called with what a system table lacks.
    """

    def __init__(
        self,
        log_directories: LogDirectories,
        engine: Engine,
        *,
        isolation: str = READ_COMMITTED,
        files: bool = False,
        on_failed: OnFailed = lambda row: None,
    ) -> None:
        self._log_directories = log_directories
        self._engine = engine
        self._isolation = isolation
        self._files = files
        self._failure: Exception | None = None
        self._plans: list[tuple[str, ScanPlan]] | None = None
        self._registered: set[str] = set()
        self._cancelling = _Cancelling()
        self._spill = tempfile.mkdtemp(prefix="kafkafs-sql-")
        try:
            self._connection = _connect(join(self._spill, "spill"), files=files)
            self._add_system_tables(on_failed)
            if not files:
                self._connection.execute("SET lock_configuration = true")
        except BaseException:
            shutil.rmtree(self._spill, ignore_errors=True)
            raise

    # -- statements -----------------------------------------------------------------------------

    def statements(self, text: str) -> list[Statement]:
        """Returns the statements of a text. Raises QueryError if it is no SQL."""
        try:
            found = self._connection.extract_statements(text)
        except duckdb.Error as error:
            raise self._query_error(error, text) from None
        return [
            Statement(
                each.query,
                _answers(each),
                each.type == _Kind.EXPLAIN,
                each.type == _Kind.TRANSACTION,
            )
            for each in found
        ]

    def run(self, statement: Statement) -> Generator[pa.RecordBatch] | None:
        """Starts a statement, and returns the record batches of its result, at least one, or None
        if it has none. Raises QueryError, or the StorageError of the topic that cannot be read;
        so does the iteration, whose end or `close` is necessary before the next statement."""
        self._failure = None
        self._cancelling.is_cancelled = False
        self._register(statement.text)
        extra = self._scan_lines(statement.text) if statement.is_explain else []
        batches = self._batches(statement.text, extra)
        first = self._guarded(lambda: next(batches), statement.text)
        if statement.ends_transaction:
            self._registered.clear()  # a rollback drops what it created
        if not statement.answers:
            batches.close()
            return None
        return self._rest(first, batches, statement.text)

    def interrupt(self) -> None:
        """Ends the statement that runs, which raises; from any thread."""
        self._cancelling.is_cancelled = True
        self._connection.interrupt()

    def close(self) -> None:
        """Closes the database, and removes the files that it spilled to."""
        with suppress(duckdb.ResourceInUseException):  # a statement could not be interrupted
            self._connection.close()
        shutil.rmtree(self._spill, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _batches(self, text: str, extra: Sequence[str]) -> Generator[Any]:
        relation = self._connection.sql(text)
        if relation is None:
            yield pa.RecordBatch.from_pylist([], pa.schema([]))
            return
        reader = relation.to_arrow_reader(_RESULT_ROWS)
        try:
            nothing = [pa.nulls(0, field.type) for field in reader.schema]
            yield pa.RecordBatch.from_arrays(nothing, schema=reader.schema)
            yield from reader
            if extra:
                lines = ["scan", "\n".join(extra)]
                yield pa.RecordBatch.from_arrays([[each] for each in lines], schema=reader.schema)
        finally:
            reader.close()

    def _rest(
        self, first: pa.RecordBatch, batches: Generator[pa.RecordBatch], text: str
    ) -> Generator[pa.RecordBatch]:
        yield first
        end = object()
        try:
            while (batch := self._guarded(lambda: next(batches, end), text)) is not end:
                yield batch
        finally:
            batches.close()

    def _guarded(self, step: Callable[[], Any], text: str) -> Any:
        """Calls `step`, and raises what it raises as this class documents."""
        try:
            return step()
        except (duckdb.Error, pa.ArrowException, RuntimeError, OSError) as error:
            if self._failure is not None:
                failure = self._failure
                if isinstance(failure, MemoryError):
                    raise QueryError("too little memory is left to decode records") from None
                raise fresh(failure) if isinstance(failure, StorageError) else failure from None
            raise self._query_error(error, text) from None

    def _query_error(self, error: Exception, text: str) -> QueryError:
        message = self._with_place(error, text)
        if _NO_SPACE in message or self._spill in message:
            return QueryError(self._no_space())
        unknown = _UNKNOWN_TABLE.search(message)
        place = _place(message)
        if unknown:
            name = unknown[1]
            hint = did_you_mean(name, [*self.tables(), *SYSTEM_TABLES])
            return QueryError(f"there is no topic or table {name}{place}{hint}")
        if isinstance(error, duckdb.OutOfMemoryException) and not self._files:
            message = _MEMORY_ADVICE.sub("", message)
            place += "; more memory, or fewer threads (SET threads=1, with --files), may help"
        what = " ".join(_EXCERPT.split(message)[0].split())
        if isinstance(error, duckdb.PermissionException) or _NOT_CHANGED in message:
            place += "; --files lets statements do this"
        place += self._not_quoted(error, text)
        if isinstance(error, duckdb.ParserException) and _RESERVED.search(text):
            place += '; offset is a word of SQL: the column is "offset", in double quotes'
        if _NO_DECODED.search(message):
            place += self._why_not_decoded()
        return QueryError(f"{what}{place}")

    def _not_quoted(self, error: Exception, text: str) -> str:
        """Returns what to do if the statement has the name of a topic as if it was SQL."""
        if not isinstance(error, duckdb.ParserException | duckdb.CatalogException):
            return ""
        named = _NAMES.findall(_QUOTED.sub(" ", text))
        topics = self._log_directories.topics
        found = [each for each in named if each in topics and not _PLAIN_NAME.fullmatch(each)]
        return f'; the name of topic {found[0]} needs double quotes: "{found[0]}"' if found else ""

    def _no_space(self) -> str:
        directory = dirname(self._spill)
        left = f"{shutil.disk_usage(self._spill).free / 2**20:,.0f} MiB are free"
        why = f"intermediate results fit neither into memory nor into {directory} ({left})"
        return f"{why}: set TMPDIR to a directory with more space"

    def _why_not_decoded(self) -> str:
        """Returns why a topic that the statement names has no column `decoded`."""
        for topic in sorted(self._registered):
            try:
                self._log_directories.scan(topic, columns=["offset"], decode=True).close()
            except SchemaError as error:
                return f"; {error}"
        return ""

    def _with_place(self, error: Exception, text: str) -> str:
        """Returns the message of an error. DuckDB leaves out the position of what it cannot bind,
        unless it explains it."""
        message = str(error)
        if isinstance(error, duckdb.BinderException | duckdb.CatalogException):
            try:
                self._connection.execute(f"EXPLAIN {text}")
            except duckdb.Error as again:
                found = _EXCERPT.split(str(again))[0]
                if found == message:
                    return (
                        str(again)
                        .replace("LINE 1: EXPLAIN ", "LINE 1: ")
                        .replace(f"\n{' ' * len('EXPLAIN ')}", "\n")
                    )
        return message

    # -- tables ---------------------------------------------------------------------------------

    def tables(self) -> list[str]:
        """Returns the names of all tables: topics, then system tables with their schema."""
        return [*self._log_directories.topics, *(f"{SYSTEM_SCHEMA}.{n}" for n in SYSTEM_TABLES)]

    def columns(self, table: str) -> list[tuple[str, ...]]:
        """Returns the names and types of a table's columns, after a heading; "": of any topic.
        Raises as `run`."""
        heading: tuple[str, ...] = ("COLUMN", "TYPE")
        if not table:
            return [heading, *((field.name, str(field.type)) for field in RECORD_SCHEMA)]
        topic = table.strip('"')
        name = f'"{topic}"' if topic in self._log_directories.topics else table
        found = [heading]
        for statement in self.statements(f"DESCRIBE FROM {name}")[:1]:
            for batch in self.run(statement) or ():
                found += zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        return found

    def system_columns(self) -> list[str]:
        """Returns the names of the columns of all system tables."""
        return [name for form in SYSTEM_TABLES.values() for name in form.schema.names]

    def keywords(self) -> list[str]:
        """Returns the words of SQL."""
        rows = self._connection.sql("SELECT keyword_name FROM duckdb_keywords()").fetchall()
        return [str(word) for (word,) in rows]

    def _add_system_tables(self, on_failed: OnFailed) -> None:
        taken = {topic.lower() for topic in self._log_directories.topics}
        run = self._connection.execute
        run(f"CREATE SCHEMA {SYSTEM_SCHEMA}")
        run(f"USE memory.{SYSTEM_SCHEMA}")
        for name in SYSTEM_TABLES:
            table = _WatchedTable(self, name, self._engine, self._cancelling, on_failed)
            self._connection.from_arrow(table).create_view(name)
        run(_HOME)
        for name in SYSTEM_TABLES:
            if name not in taken:
                run(f'CREATE VIEW "{name}" AS SELECT * FROM {SYSTEM_SCHEMA}."{name}"')

    def _register(self, text: str) -> None:
        """Makes views of the topics that a statement may name."""
        named = {*_NAMES.findall(text), *_WORDS.findall(text)}
        lower = {name.lower() for name in named}
        is_listing = _LISTING.search(text) is not None
        found: defaultdict[str, list[str]] = defaultdict(list)
        for topic in self._log_directories.topics:
            if is_listing or topic.lower() in lower:
                found[topic.lower()].append(topic)
        for topics in found.values():
            exact = [topic for topic in topics if topic in named] or topics
            if len(exact) > 1 and not is_listing:
                what = f"topics {' and '.join(topics)} differ only by case"
                raise QueryError(f"{what}, which SQL does not distinguish: name one, as it is")
            self._view(exact[0])

    def _view(self, topic: str) -> None:
        if topic in self._registered:
            return
        watched = _WatchedTopic(self, topic)
        columns = ", ".join(f'"{name}"' for name in watched.names)
        relation = self._connection.from_arrow(watched)
        relation.select(columns).create_view(topic)
        self._registered = {each for each in self._registered if each.lower() != topic.lower()}
        self._registered.add(topic)

    # -- plans ----------------------------------------------------------------------------------

    def _scan_lines(self, text: str) -> list[str]:
        """Returns a line for each scan of a topic in the query that a statement explains: what it
        reads. The query is run on empty topics."""
        query = _EXPLAIN.sub("", _without_comment(text), count=1)
        found = self._connection.extract_statements(query)
        if len(found) != 1 or found[0].type != _Kind.SELECT:
            return []
        self._plans = []
        try:
            self._guarded(lambda: self._connection.sql(query).fetchall(), text)
            return [_plan_line(topic, plan) for topic, plan in self._plans]
        finally:
            self._plans = None

    def _watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the batches of a scan, and notes the error that ends it: DuckDB only has the text
        of it."""
        try:
            for batch in batches:
                self._cancelling.check()
                yield batch
        except Exception as error:
            self._failure = error
            raise


class _Cancelling(ProgressListener):
    """Ends an operation that has been interrupted."""

    is_cancelled = False

    def check(self) -> None:
        if self.is_cancelled:
            raise InterruptedError


class _WatchedTopic(TopicDataset):
    """A topic of a session, in the order of columns that is best for DuckDB."""

    def __init__(self, session: Session, topic: str) -> None:
        isolation = session._isolation
        super().__init__(
            session._log_directories, topic, first=_FIRST, encoded=True, isolation=isolation
        )
        self._session = session

    def batches(
        self, columns: Sequence[str], filter: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        return self._session._watch(self._planned(columns, filter))

    def _planned(
        self, columns: Sequence[str], filter: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        if self._session._plans is None:
            yield from super().batches(columns, filter)
        else:
            self._session._plans.append((self.topic, self.plan(filter)))


class _WatchedTable(SystemTable):
    """A system table of a session."""

    def __init__(self, session: Session, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._session = session

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self._session._watch(() if self._session._plans is not None else super().batches())


def _connect(spill: str, *, files: bool) -> duckdb.DuckDBPyConnection:
    config: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": spill,
        "python_enable_replacements": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("SET TimeZone = 'UTC'")
    if not files:
        connection.execute("SET enable_external_access = false")
    return connection


def _answers(statement: duckdb.Statement) -> bool:
    """Returns whether a statement's rows are an answer, and not only how many it has changed."""
    is_query = statement.expected_result_type == [_Answer.QUERY_RESULT]
    has_more = statement.type == _Kind.MULTI or _RETURNING.search(statement.query) is not None
    return is_query or has_more


def _without_comment(text: str) -> str:
    """Returns a statement without the spaces and comments before it."""
    while found := _COMMENTS.match(text):
        text = text[found.end() :]
    return text


def _place(message: str) -> str:
    """Returns the position that an error of DuckDB shows, as ` at line 1, column 8`; "" if none."""
    found = _EXCERPT.search(message)
    if found is None:
        return ""
    line, excerpt, spaces = found.groups()
    column = len(spaces) - len(f"LINE {line}: ") + 1
    if excerpt.startswith("...") or column < 1:
        return f" at line {line}"
    return f" at line {line}, column {column}"


def _plan_line(topic: str, plan: ScanPlan) -> str:
    partitions = len({part.partition for part in plan.slices})
    return (
        f"{topic}: reads {partitions} of {plan.partitions} partitions,"
        f" {plan.selected} of {plan.offsets} offsets"
    )
