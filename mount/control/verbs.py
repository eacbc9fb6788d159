"""The verbs that can be written to `.kafkafs/control`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from kafkafs.storage.errors import SettingsStay, StorageError
from kafkafs.storage.log.delete.deletions import Deletion
from kafkafs.storage.log_dirs.purging import FoundLeftover, select
from kafkafs.storage.log_dirs.selection import Choice, choose

from ..vfs.errnos import Invalid
from .conversation import Control, Emit, Fed, Row, Work, error_row
from .fed_lines import FIELDS, fed_lines

# The most digits of an int32.
_PARTITION_DIGITS: Final = 10
# The most digits of an int64.
_OFFSET_DIGITS: Final = 19

Prepare = Callable[[Control, Sequence[str]], Work | Fed]
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ControlVerb:
    """`usage` is the verb with its arguments. `prepare` turns the arguments into work; it raises
    Invalid, or the engine's error for a name."""

    usage: str
    does: str
    prepare: Prepare


def prepared(control: Control, line: bytes) -> Work | Fed:
    """Returns the work for a line. Raises Invalid if the verb is unknown or wrongly used."""
    name, *words = line.decode("utf-8", "surrogateescape").split(None, 1) or [""]
    verb = VERBS.get(name)
    if verb is None:
        raise Invalid("no such verb; `help` lists the verbs")
    rest = words[0] if words else ""
    return verb.prepare(control, [rest] if verb.prepare in _WITH_JSON else rest.split())


# -- words ----------------------------------------------------------------------------------------


def _one(words: Sequence[str], what: str) -> str:
    if len(words) != 1:
        raise Invalid(f"needs one {what}")
    return words[0]


def _none(words: Sequence[str]) -> None:
    if words:
        raise Invalid("takes no arguments")


def _split(words: Sequence[str], options: frozenset[str]) -> tuple[list[Choice], frozenset[str]]:
    """Returns the selected partitions, and the options. A topic named like an option is written
    with a slash, as in `force/`."""
    given = frozenset(words) & options
    return [_choice(word) for word in words if word not in given], given


def _choice(word: str) -> Choice:
    topic, _, number = word.partition("/")
    if topic and not number:
        return topic, None
    if not (topic and number.isascii() and number.isdigit()) or len(number) > _PARTITION_DIGITS:
        raise Invalid("needs TOPIC or TOPIC/PARTITION")
    return topic, int(number)


def _object(words: Sequence[str], **kinds: type) -> dict[str, Any]:
    """Returns the fields of a JSON object, each checked for its type."""
    try:
        found = json.loads("".join(words))
    except ValueError as error:
        raise Invalid(f"needs a JSON object: {error}") from None
    if not isinstance(found, dict):
        raise Invalid("needs a JSON object")
    for name, value in found.items():
        if name not in kinds or not isinstance(value, kinds[name]):
            raise Invalid(f"field {name!r} is not one of {', '.join(kinds)}, or has a wrong type")
    return found


def _settings(found: Mapping[str, Any], *, nulls: bool) -> dict[str, Any]:
    for value in found.values():
        if not (isinstance(value, str) or (nulls and value is None)):
            raise Invalid("config values must be strings")
    return dict(found)


# -- what is done ---------------------------------------------------------------------------------


def _help(control: Control, words: Sequence[str]) -> Work:
    _none(words)

    def tell(emit: Emit) -> None:
        for verb in VERBS.values():
            emit({"verb": verb.usage, "does": verb.does})

    return Work(tell, is_quick=True)


def _status(control: Control, words: Sequence[str]) -> Work:
    _none(words)

    def tell(emit: Emit) -> None:
        for status in control.engine.task_status():
            emit(status.as_json())

    return Work(tell, is_quick=True)


def _task(control: Control, words: Sequence[str]) -> str:
    name = _one(words, "TASK")
    names = control.engine.task_names
    if name not in names:
        raise Invalid(f"no such task; there are {', '.join(names)}")
    return name


def _run(control: Control, words: Sequence[str]) -> Work:
    name = _task(control, words)

    def run(emit: Emit) -> None:
        began = monotonic()
        control.engine.run(name)
        emit({"task": name, "seconds": round(monotonic() - began, 6)})

    return Work(run)


def _pause(control: Control, words: Sequence[str]) -> Work:
    name = _task(control, words)

    def pause(emit: Emit) -> None:
        control.engine.pause(name)
        emit({"task": name, "paused": True})

    return Work(pause, is_quick=True)


def _resume(control: Control, words: Sequence[str]) -> Work:
    name = _task(control, words)

    def resume(emit: Emit) -> None:
        control.engine.resume(name)
        emit({"task": name, "paused": False})

    return Work(resume, is_quick=True)


def _each(
    control: Control, keys: Sequence[Key], work: Callable[[Key], Iterator[Row]], emit: Emit
) -> None:
    """Does `work` on every partition, even if it fails on others."""
    for key in keys:
        control.check()
        try:
            for row in work(key):
                emit(row)
        except (StorageError, OSError) as error:
            emit(error_row(error, "{}-{}".format(*key)))


def _expire(control: Control, words: Sequence[str]) -> Work:
    from kafkafs.storage.operations.expiring import expire, foretell

    chosen, options = _split(words, frozenset(("all", "dry-run")))
    engine = control.engine
    keys = choose(engine.topics(), chosen)

    def rows(key: Key) -> Iterator[Row]:
        if "dry-run" in options:
            futures = foretell(engine, key, engine.clock.now_ms())
        else:
            futures = expire(engine, key)
        return (each.as_json() for each in futures if each.goes or "all" in options)

    return Work(lambda emit: _each(control, keys, rows, emit))


def _compact(control: Control, words: Sequence[str]) -> Work:
    from kafkafs.storage.operations.compaction import compact, foretell

    chosen, options = _split(words, frozenset(("all", "force", "dry-run")))
    engine = control.engine
    keys = choose(engine.topics(), chosen)
    named = {topic for topic, _ in chosen}
    forced = "force" in options

    def work(emit: Emit) -> None:
        offset_map = engine.cleaner.new_map()

        def rows(key: Key) -> Iterator[Row]:
            if "dry-run" in options:
                done = foretell(engine, key, engine.clock.now_ms(), forced)
            else:
                done = compact(engine, key, offset_map, forced)
            if done is None and key[0] in named:
                yield not_compacted(key)
            elif done is not None and (done.is_change or "all" in options):
                yield done.as_json()

        _each(control, keys, rows, emit)

    return Work(work)


def not_compacted(key: Key) -> Row:
    why = 'its cleanup.policy does not include "compact"'
    return {"error": why, "kind": "NotCompacted", "where": "{}-{}".format(*key)}


def _create_topic(control: Control, words: Sequence[str]) -> Work:
    given = _object(words, topic=str, partitions=int, settings=dict, topicId=str, unregistered=bool)
    settings = _settings(given.get("settings", {}), nulls=False)
    topic, partitions = given.get("topic", ""), given.get("partitions", 1)

    def create(emit: Emit) -> None:
        topic_id = control.engine.create_topic(
            topic,
            partitions,
            settings,
            given.get("topicId", ""),
            unregistered=given.get("unregistered", False),
        )
        emit({"topic": topic, "topicId": topic_id, "partitions": partitions})

    return Work(create)


def _topic(control: Control, name: str) -> str:
    choose(control.engine.topics(), [(name, None)])
    return name


def _delete_topic(control: Control, words: Sequence[str]) -> Work:
    topic = _topic(control, _one(words, "TOPIC"))

    def delete(emit: Emit) -> None:
        try:
            control.engine.delete_topic(topic)
        except SettingsStay as left:
            emit({"topic": topic, "deleted": True, "warning": str(left)})
        else:
            emit({"topic": topic, "deleted": True})

    return Work(delete)


def _append(control: Control, words: Sequence[str]) -> Fed:
    return fed_lines(control, _object(words, **FIELDS))


def _configure_topic(control: Control, words: Sequence[str]) -> Work:
    given = _object(words, topic=str, changes=dict)
    changes = _settings(given.get("changes", {}), nulls=True)
    topic = _topic(control, given.get("topic", ""))

    def configure(emit: Emit) -> None:
        emit({"topic": topic, **control.engine.set_topic_config(topic, changes).as_json()})

    return Work(configure)


def _deleted(control: Control, words: Sequence[str]) -> Work:
    chosen, _ = _split(words, frozenset())

    def tell(emit: Emit) -> None:
        for each in control.engine.deleted():
            if not chosen or any(_is_of(each, choice) for choice in chosen):
                emit(each.as_json())

    return Work(tell)


def _is_of(deletion: Deletion, choice: Choice) -> bool:
    topic, number = choice
    return deletion.topic == topic and number in (None, deletion.partition)


def _undelete(control: Control, words: Sequence[str]) -> Work:
    if not 1 <= len(words) <= 2:
        raise Invalid("needs TOPIC or TOPIC/PARTITION, and optionally an OFFSET")
    topic, number = _choice(words[0])
    offset = _offset(words[1]) if len(words) == 2 else None

    def undelete(emit: Emit) -> None:
        for each in control.engine.undelete(topic, number, offset):
            emit(each.as_json())

    return Work(undelete)


def _offset(word: str) -> int:
    if not (word.isascii() and word.isdigit()) or len(word) > _OFFSET_DIGITS:
        raise Invalid("OFFSET must be a number")
    return int(word)


def _purge(control: Control, words: Sequence[str]) -> Work:
    chosen, options = _split(words, frozenset(("stray", "dry-run")))

    def find() -> list[FoundLeftover]:
        engine = control.engine
        return select(engine, engine.leftovers(strays="stray" in options), chosen)

    def purge(emit: Emit) -> None:
        for each in find() if "dry-run" in options else control.engine.purge(find()):
            emit(each.as_json())

    find()  # raises an unknown topic or partition at once
    return Work(purge)


_WITH_JSON: Final[frozenset[Prepare]] = frozenset((_create_topic, _configure_topic, _append))

VERBS: Final[dict[str, ControlVerb]] = {
    verb.usage.split()[0]: verb
    for verb in (
        ControlVerb("help", "lists the verbs", _help),
        ControlVerb("status", "shows the status of the background tasks", _status),
        ControlVerb("run TASK", "runs a background task now and waits until it has finished", _run),
        ControlVerb("pause TASK", "stops scheduling a background task", _pause),
        ControlVerb("resume TASK", "schedules a background task again", _resume),
        ControlVerb(
            "expire [TOPIC[/PARTITION]]... [all] [dry-run]",
            "deletes the segments that retention deletes now; all: also reports retained ones",
            _expire,
        ),
        ControlVerb(
            "compact [TOPIC[/PARTITION]]... [force] [all] [dry-run]",
            "compacts the logs that Kafka's cleaner would clean now; force: also those not due yet;"
            " all: also reports unchanged ones",
            _compact,
        ),
        ControlVerb(
            'create-topic {"topic": …, "partitions": …, "settings": {…}, "topicId": …,'
            ' "unregistered": …}',
            "creates a topic, by default with one partition and a new topic id;"
            " unregistered true: also one that the KRaft cluster of the directories does not know",
            _create_topic,
        ),
        ControlVerb("delete-topic TOPIC", "deletes a topic with all its records", _delete_topic),
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
            _purge,
        ),
        ControlVerb("deleted [TOPIC[/PARTITION]]...", "lists what can be restored", _deleted),
        ControlVerb(
            "undelete TOPIC[/PARTITION] [OFFSET]",
            "restores what was deleted; OFFSET: of a partition, from that offset on",
            _undelete,
        ),
    )
}
