"""`config.properties` of a writable mount: what is written to it becomes a topic's settings.

What is written goes to a draft, which everybody is shown. When a writer closes it, the draft is
read as Java reads `.properties`, and where it says something else than counts now, just that is
changed; the file is then again what the engine makes of the settings.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum, auto
from time import monotonic
from typing import TYPE_CHECKING, Final

from kafkafs.storage.config import (
    Resolved,
    Settings,
    Source,
    check_topic_settings,
    topic_config,
)
from kafkafs.storage.errors import ConfigError, CorruptError, UnknownTopic
from kafkafs.storage.format.properties import Property, iter_properties

from .. import render
from ..errnos import Invalid
from ..handles import Data
from ..write_handle import WriteHandle
from .scratch import Buffer, KeptAttributes

if TYPE_CHECKING:
    from kafkafs.storage.writable_engine import WritableEngine

_MODE: Final = 0o644
# Programs that put a new file in the place of another may remove that first.
_ASIDE_SECONDS: Final = 1.0
# Of a reason that repeats what was written.
_MAX_REASON: Final = 300


class _Draft(Enum):
    """What happened to a draft since it last counted."""

    SAME = auto()
    EMPTIED = auto()
    WRITTEN = auto()


class TopicSettingsFile:
    """Of one topic. Any thread may use it; each call may wait for the disk."""

    def __init__(self, engine: WritableEngine, topic: str, mtime_ns: int) -> None:
        self.attributes = KeptAttributes(_MODE, mtime_ns)
        self._engine = engine
        self._topic = topic
        self._incarnation = engine.incarnation(topic)
        self._lock = threading.Lock()  # guards what follows
        self._writers = 0
        self._draft: Buffer | None = None
        self._state = _Draft.SAME
        self._is_shown = False
        self._aside_until = 0.0

    @property
    def is_there(self) -> bool:
        """Whether its name can be looked up."""
        return monotonic() >= self._aside_until

    def content(self) -> bytes:
        """What everybody is shown. UnknownTopic."""
        with self._lock:
            return self._drafted().read() if self._is_shown else self._settings()

    def draft(self) -> bytes:
        """What a writer is shown, for whom nothing changes when it counts."""
        with self._lock:
            return self._drafted().read()

    def _settings(self) -> bytes:
        return render.properties(self._resolved().changed)

    def _resolved(self) -> Resolved:
        """UnknownTopic also when another topic has the name now."""
        if self._engine.incarnation(self._topic) != self._incarnation:
            raise UnknownTopic(self._topic)
        return self._engine.topic_config(self._topic)

    def put_aside(self) -> None:
        """It was removed or renamed: for a moment there is no file of that name, unless one is made
        before. The settings stay."""
        self._aside_until = monotonic() + _ASIDE_SECONDS

    # -- drafts ---------------------------------------------------------------------------------

    def open(self, *, empty: bool) -> None:
        """One more writes; `empty`: from nothing."""
        with self._lock:
            self._writers += 1
            self._aside_until = 0.0
            if empty:
                self._truncate(0)

    def write(self, position: int | None, data: Data) -> None:
        """At the end without a `position`. TooLarge."""
        with self._lock:
            draft = self._drafted()
            draft.write(len(draft) if position is None else position, data)
            self._state, self._is_shown = _Draft.WRITTEN, True

    def truncate(self, size: int) -> None:
        """TooLarge."""
        with self._lock:
            self._truncate(size)

    def _truncate(self, size: int) -> None:
        self._drafted().truncate(size)
        self._is_shown = True
        if size or self._state is _Draft.WRITTEN:
            self._state = _Draft.WRITTEN
        else:
            self._state = _Draft.EMPTIED

    def _drafted(self) -> Buffer:
        if self._draft is None:
            self._draft = Buffer(self._settings())
        return self._draft

    def _drop_draft(self) -> None:
        self._draft, self._state, self._is_shown = None, _Draft.SAME, False

    def settle(self) -> None:
        """A writer has come to an end with what it wrote. Invalid, and then nothing is changed.

        That it was emptied alone does not count yet: a shell empties a file, and closes one of its
        descriptors, before the program runs that writes to it.
        """
        with self._lock:
            if self._state is _Draft.WRITTEN:
                self._is_shown = False
                self._apply(self._drafted().read())
                self._state = _Draft.SAME

    def close(self) -> None:
        """One less writes; behind the last the draft goes. Invalid."""
        with self._lock:
            self._writers -= 1
            if self._writers:
                return
            emptied = self._state is _Draft.EMPTIED
            self._drop_draft()
            if emptied:
                self._apply(b"")

    def replace(self, data: bytes, attributes: KeptAttributes) -> None:
        """Another file with `data` takes its place, as by rename(2). Invalid, and then nothing is
        changed."""
        with self._lock:
            self._apply(data)
            self.attributes = replace(attributes)
            self._drop_draft()
            self._aside_until = 0.0

    def resize(self, size: int) -> None:
        """truncate(2). Invalid, TooLarge."""
        with self._lock:
            cut = Buffer(self._drafted().read() if self._is_shown else self._settings())
            cut.truncate(size)
            self._apply(cut.read())
            self._drop_draft()

    def _apply(self, data: bytes) -> None:
        given = parse(self._topic, data)
        shown = self._resolved()
        kept = self._engine.topic_settings(self._topic)
        changes = differences(self._topic, given, shown, kept)
        if changes:
            try:
                self._engine.set_topic_config(self._topic, changes)
            except ConfigError as error:
                raise _invalid(self._topic, given.get(error.name), error) from None
        self.attributes.mtime_ns = time.time_ns()


class SettingsHandle(WriteHandle):
    """One that writes, and reads where the kernel lets it."""

    def __init__(self, file: TopicSettingsFile, *, empty: bool, appends: bool) -> None:
        """`empty`: from nothing; `appends`: every write goes to the end."""
        file.open(empty=empty)
        self._file = file
        self._appends = appends

    def read(self, position: int, size: int) -> Data:
        return self._file.draft()[position : position + size]

    def write(self, position: int, data: bytes) -> int:
        self._file.write(None if self._appends else position, data)
        return len(data)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def flush(self) -> None:
        self._file.settle()

    def sync(self) -> None:
        self._file.settle()

    def close(self) -> None:
        self._file.close()


def parse(topic: str, data: bytes) -> dict[str, Property]:
    """The settings in `data` by name, the last of each. Invalid, naming the line, for what is none
    or has a value that Kafka would refuse."""
    found: dict[str, Property] = {}
    try:
        for each in iter_properties(data):
            _check(topic, each)
            found[each.key] = each
    except CorruptError as error:  # which names the line itself
        raise Invalid(f"{topic}/config.properties, {error}") from None
    return found


def _check(topic: str, given: Property) -> None:
    if not given.is_separated:
        raise _invalid(topic, given, ConfigError(given.key, "no value; a line is name=value"))
    try:
        check_topic_settings({given.key: given.value})
    except ConfigError as error:
        raise _invalid(topic, given, error) from None


def differences(
    topic: str, given: Mapping[str, Property], shown: Resolved, kept: Mapping[str, str]
) -> dict[str, str | None]:
    """What to change so that a topic has the settings `given`, where it was `shown` to have others
    and `kept` are its own; None where one of its own is taken back.

    What counts already is not made the topic's own, wherever it comes from.
    """
    said = topic_config(Settings(topic_file={name: of.value for name, of in given.items()}))
    changes: dict[str, str | None] = {}
    for name, text in said.changed.items():
        if shown.changed.get(name) == text:
            continue
        if shown.sources.get(name) is Source.RUN:
            error = ConfigError(name, "was given with -c for as long as the mount lasts")
            raise _invalid(topic, given[name], error)
        changes[name] = text
    changes.update(dict.fromkeys(shown.changed.keys() & kept.keys() - given.keys()))
    return changes


def _invalid(topic: str, given: Property | None, error: Exception) -> Invalid:
    line = f", line {given.line}" if given is not None else ""
    reason = str(error)
    if len(reason) > _MAX_REASON:
        reason = reason[:_MAX_REASON] + "…"
    return Invalid(f"{topic}/config.properties{line}: {reason}")
