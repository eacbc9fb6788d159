"""PySpark's interface of a write: the Arrow writers of batches and of streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kafkafs.storage import BatchPlan, IngestWrite, StagedPart, check_is_local

from ..option_texts import OptionError
from ..read.planning import find_log_dirs, refuse_within_log_dir
from ..workers import spare_collections
from .job_names import new_job
from .write_options import WriteOptions
from .writing import (
    Target,
    TaskWriter,
    WriteError,
    check_topic,
    check_writable,
    commit,
    remove_job,
    remove_stale,
)

_HEADERS = "array<struct<key:string,value:binary>>"
_TYPES: Mapping[str, tuple[str, ...]] = {
    "topic": ("string",),
    "key": ("string", "binary", "void"),
    "value": ("string", "binary", "void"),
    "headers": (_HEADERS,),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
# Set by Spark for the tasks of a stream (StreamExecution.QUERY_ID_KEY). It is stored in the
# checkpoint, so a restarted query has the same.
_QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The parts that one task has staged, with its job and, in a stream, its query."""

    job: str
    query: str | None
    task: int
    parts: tuple[StagedPart, ...]


class _Writing:
    """The common part of batch and stream writers. It is pickled for the tasks."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Checks the write before any task starts. Raises OptionError or WriteError for columns
        that cannot be written, LogDirError, LogDirLocked, or the error that prevents creating the
        topic, such as Unregistered."""
        _check_columns(schema, options)
        for path in options.paths:
            check_is_local(path)
        log_dirs = tuple(find_log_dirs(options.paths))
        check_writable(log_dirs)
        if options.staging_dir is not None:
            refuse_within_log_dir(options.staging_dir, log_dirs)
        self._options = options
        self._target = Target(
            log_dirs=log_dirs,
            configs=dict(options.configs),
            staging_dir=options.staging_dir,
            job=new_job(),
            topic=options.topic,
            create_topics=options.create_topics,
            unregistered=options.unregistered,
            plan=BatchPlan(
                batch_bytes=options.batch_bytes, codec=options.codec, level=options.level
            ),
            ignore_keys=options.ignore_keys,
        )
        check_topic(self._target)
        remove_stale(self._target)

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        spare_collections()
        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        attempt = f"{task}-{context.attemptNumber()}-{context.taskAttemptId()}"
        parts = TaskWriter(self._target, task, attempt).write(batches)
        query = context.getLocalProperty(_QUERY_ID)
        return Staged(self._target.job, query, task, tuple(parts))

    def _commit(self, messages: Sequence[Staged], write: IngestWrite) -> None:
        ordered = sorted(messages, key=lambda message: message.task)
        parts = [part for message in ordered for part in message.parts]
        jobs = {self._target.job, *(message.job for message in messages)}
        commit(self._target, write, parts, jobs)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        for job in {self._target.job, *(message.job for message in _staged(messages))}:
            remove_job(self._target, job)


class KafkafsWriter(_Writing, DataSourceArrowWriter):
    """One batch write: created on the driver, pickled, executed by tasks, and committed."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        options = self._options
        write = IngestWrite(options.writer or self._target.job, options.epoch)
        self._commit(_staged(messages), write)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class KafkafsStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """The writes of a stream. Spark creates a new object for each batch's commit."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        query = self._options.writer or (staged[0].query if staged else "")
        if query is None:
            raise OptionError("queryId", "must be set, because Spark did not pass the query's id")
        self._commit(staged, IngestWrite(query, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._abort(messages)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """Returns the messages without those of failed tasks."""
    return [message for message in messages if isinstance(message, Staged)]


def _check_columns(schema: StructType, options: WriteOptions) -> None:
    """Checks the columns as Spark's KafkaWriter does; unknown columns are ignored, as there."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "topic" not in types and options.topic is None:
        raise WriteError(
            "topic option required when no 'topic' attribute is present. "
            "Use the topic option for setting a topic."
        )
    if "value" not in types:
        raise WriteError("Required attribute 'value' not found.")
    for name, allowed in _TYPES.items():
        if types.get(name, allowed[0]) not in allowed:
            expected = " or ".join(kind for kind in allowed if kind != "void")
            raise WriteError(
                f"{name} attribute unsupported type {types[name]}. {name} must be a {expected}"
            )
