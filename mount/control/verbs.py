"""The verbs that can be written to `.kafkafs/control`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkafs.storage import (
    AppendLines,
    Compact,
    ConfigureTopic,
    CreateTopic,
    DeleteTopics,
    Expire,
    ListDeleted,
    PartitionFailed,
    PartitionsRequest,
    ProgressListener,
    Purge,
    Request,
    Row,
    Selection,
    UnknownPartition,
    UnknownTopic,
    append_lines,
    compact,
    configure_topic,
    create_topic,
    delete_topics,
    erase,
    expire,
    fresh,
    list_deleted,
    purge,
    undelete,
)

from ..vfs.errnos import Invalid
from .conversation import Control, Emit, VerbWithData, Work
from .lines import described, erasing, selecting, undeleting

if TYPE_CHECKING:
    from kafkafs.storage import LogManager

_MAX_APPEND_BYTES: Final = 64 << 20

Prepare = Callable[[Control, Sequence[str]], Work | VerbWithData]
Q = TypeVar("Q", bound=Request)
P = TypeVar("P", bound=PartitionsRequest)
Operation = Callable[[Any, Q, ProgressListener], Iterator[Row | PartitionFailed]]


@dataclass(frozen=True, slots=True)
class ControlVerb:
    """`usage` is the verb with its arguments. `prepare` turns the arguments into work; it raises
    Invalid, or the engine's error for a name."""

    usage: str
    does: str
    prepare: Prepare


def prepared(control: Control, line: bytes) -> Work | VerbWithData:
    """Returns the work for a line. Raises Invalid if the verb is unknown or wrongly used."""
    name, *words = line.decode("utf-8", "surrogateescape").split(None, 1) or [""]
    verb = VERBS.get(name)
    if verb is None:
        raise Invalid("no such verb; `help` lists the verbs")
    rest = words[0] if words else ""
    return verb.prepare(control, [rest] if verb.prepare in _WITH_JSON else rest.split())


# -- kinds of verbs -------------------------------------------------------------------------------


def _one(words: Sequence[str], what: str) -> str:
    if len(words) != 1:
        raise Invalid(f"needs one {what}")
    return words[0]


def _quick(rows: Callable[[Control], Iterable[dict[str, Any]]]) -> Prepare:
    """Returns a verb without arguments that answers at once."""

    def prepare(control: Control, words: Sequence[str]) -> Work:
        if words:
            raise Invalid("takes no arguments")

        def run(emit: Emit) -> None:
            for row in rows(control):
                emit(row)

        return Work(run, is_quick=True)

    return prepare


def _of_task(change: Callable[[LogManager, str], dict[str, Any]], *, is_quick: bool) -> Prepare:
    """Returns a verb for a background task; `change` returns the row of the answer."""

    def prepare(control: Control, words: Sequence[str]) -> Work:
        name = _one(words, "TASK")
        names = control.engine.task_names
        if name not in names:
            raise Invalid(f"no such task; there are {', '.join(names)}")
        return Work(lambda emit: emit({"task": name, **change(control.engine, name)}), is_quick)

    return prepare


def _selected(kind: type[P], operation: Operation[P]) -> Prepare:
    """Returns a verb for partitions that must exist."""
    return lambda control, words: _checked(control, selecting(kind, words), operation)


# -- what is done ---------------------------------------------------------------------------------


def _run(engine: LogManager, task: str) -> dict[str, Any]:
    began = monotonic()
    engine.run(task)
    return {"seconds": round(monotonic() - began, 6)}


def _pause(engine: LogManager, task: str) -> dict[str, Any]:
    engine.pause(task)
    return {"paused": True}


def _resume(engine: LogManager, task: str) -> dict[str, Any]:
    engine.resume(task)
    return {"paused": False}


class _UntilTheEnd(ProgressListener):
    """Cancels an operation when the mount ends."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def check(self) -> None:
        self._control.check()


def _work(control: Control, request: Q, operation: Operation[Q]) -> Work:
    """Returns the work that answers with the rows of an operation."""

    def run(emit: Emit) -> None:
        for row in operation(control.engine, request, _UntilTheEnd(control)):
            emit(row.as_json())

    return Work(run)


def _checked(control: Control, request: Q, operation: Operation[Q]) -> Work:
    """Like `_work`, but raises at once if a topic or partition does not exist."""
    refused = request.check(control.engine)
    for each in refused:
        if isinstance(each.cause, UnknownTopic | UnknownPartition):
            raise fresh(each.cause)
    return _work(control, request, (lambda *_: iter(refused)) if refused else operation)


def _topic(control: Control, name: str) -> str:
    Selection(((name, None),)).partitions(control.engine.topics())
    return name


def _deleted(control: Control, words: Sequence[str]) -> Work:
    return _work(control, selecting(ListDeleted, words), list_deleted)


def _erase(control: Control, words: Sequence[str]) -> Work:
    request = erasing(words[0])
    request.units(control.engine)
    return _work(control, request, erase)


def _undelete(control: Control, words: Sequence[str]) -> Work:
    return _work(control, undeleting(words), undelete)


def _create_topic(control: Control, words: Sequence[str]) -> Work:
    request = described(CreateTopic, words[0])
    _refuse_values(request.configs, str)
    return _work(control, request, create_topic)


def _delete_topic(control: Control, words: Sequence[str]) -> Work:
    keeps = words[1:] == ["keep-remote"]
    topic = _topic(control, _one(words[:1] if keeps else words, "TOPIC"))
    return _work(control, DeleteTopics((topic,), keeps), delete_topics)


def _configure_topic(control: Control, words: Sequence[str]) -> Work:
    request = described(ConfigureTopic, words[0])
    _refuse_values(request.changes, str | None)
    _topic(control, request.topic)
    return _work(control, request, configure_topic)


def _refuse_values(found: Mapping[str, Any], kinds: type | UnionType) -> None:
    if not all(isinstance(value, kinds) for value in found.values()):
        raise Invalid("config values must be strings")


def _append(control: Control, words: Sequence[str]) -> VerbWithData:
    """Prepares the verb: whole lines follow and are appended once they have all arrived."""
    request, engine = described(AppendLines, words[0]), control.engine
    if not 0 <= request.size <= _MAX_APPEND_BYTES:
        raise Invalid(f"size must be from 0 to {_MAX_APPEND_BYTES}")
    writer = engine.writer(request.topic, request.partition)

    def run(data: bytes, emit: Emit) -> None:
        row = append_lines(
            lambda records: writer.append_records(
                records.stamped(engine.clock.now_ms()), request.plan
            ),
            request,
            data,
        )
        if request.sync:
            writer.flush()
        emit(row.as_json())

    return VerbWithData(request.size, lambda data: Work(partial(run, data), is_quick=True))


_WITH_JSON: Final[frozenset[Prepare]] = frozenset(
    (_create_topic, _configure_topic, _append, _erase)
)

VERBS: Final[dict[str, ControlVerb]] = {
    verb.usage.split()[0]: verb
    for verb in (
        ControlVerb(
            "help",
            "lists the verbs",
            _quick(lambda control: [{"verb": v.usage, "does": v.does} for v in VERBS.values()]),
        ),
        ControlVerb(
            "status",
            "shows the status of the background tasks",
            _quick(lambda control: [each.as_json() for each in control.engine.task_status()]),
        ),
        ControlVerb(
            "run TASK",
            "runs a background task now and waits until it has finished",
            _of_task(_run, is_quick=False),
        ),
        ControlVerb(
            "pause TASK", "stops scheduling a background task", _of_task(_pause, is_quick=True)
        ),
        ControlVerb(
            "resume TASK", "schedules a background task again", _of_task(_resume, is_quick=True)
        ),
        ControlVerb(
            "expire [TOPIC[/PARTITION]]... [all] [dry-run]",
            "deletes the segments that retention deletes now; all: also reports retained ones",
            _selected(Expire, expire),
        ),
        ControlVerb(
            "compact [TOPIC[/PARTITION]]... [force] [all] [dry-run]",
            "compacts the logs that Kafka's cleaner would clean now; force: also those not due yet;"
            " all: also reports unchanged ones",
            _selected(Compact, compact),
        ),
        ControlVerb(
            'erase {"partitions": [TOPIC[/PARTITION], …], "keys": [K, …], "keyPrefix": …,'
            ' "offset": …, "dryRun": …}',
            "erases the records of some keys, of all keys with a prefix, or the one at an offset,"
            " from all files of the partitions",
            _erase,
        ),
        ControlVerb(
            'create-topic {"topic": …, "partitions": …, "settings": {…}, "topicId": …,'
            ' "unregistered": …, "register": …}',
            "creates a topic, by default with one partition and a new topic id;"
            " unregistered true: also one that the KRaft cluster of the directories does not know;"
            " register true: makes it known to that cluster",
            _create_topic,
        ),
        ControlVerb(
            "delete-topic TOPIC [keep-remote]",
            "deletes a topic with all its records; keep-remote: those in remote storage stay there",
            _delete_topic,
        ),
        ControlVerb(
            'configure-topic {"topic": …, "changes": {…}}',
            "changes configs of a topic; null removes one",
            _configure_topic,
        ),
        ControlVerb(
            'append {"topic": …, "partition": …, "size": …, "format": …, "keySeparator": …, '
            '"compression": …, "batchSize": …, "lines": …, "sync": …}',
            "appends the lines in the size bytes that follow this line",
            _append,
        ),
        ControlVerb(
            "purge [TOPIC[/PARTITION]]... [stray] [dry-run]",
            "removes leftover files of other processes; stray: also stray partitions",
            _selected(Purge, purge),
        ),
        ControlVerb("deleted [TOPIC[/PARTITION]]...", "lists what can be restored", _deleted),
        ControlVerb(
            "undelete TOPIC[/PARTITION] [OFFSET]",
            "restores what was deleted; OFFSET: of a partition, from that offset on",
            _undelete,
        ),
    )
}
