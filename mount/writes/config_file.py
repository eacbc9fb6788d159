"""`config.properties` of a writable mount: writing to it changes a topic's configs.

Writes go to a draft, which all readers see. When a writer closes the file, the draft is parsed as
Java parses `.properties`, and only the configs that differ from the effective ones are changed.
Then the file again shows what the engine renders.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum, auto
from time import monotonic
from typing import TYPE_CHECKING, Final

from kafkafs.storage import (
    ConfigError,
    Configs,
    ConfigSource,
    CorruptError,
    Property,
    Resolved,
    UnknownTopic,
    check_topic_configs,
    iter_properties,
    topic_config,
)

from ..vfs import render
from ..vfs.errnos import Invalid
from ..vfs.handles import Data
from ..vfs.write_handle import WriteHandle
from .scratch import Buffer, KeptAttributes

if TYPE_CHECKING:
    from kafkafs.storage import LogManager

_MODE: Final = 0o644
# How long the file stays absent after its removal: programs may remove a file before they put
# a new one in its place.
_ASIDE_SECONDS: Final = 1.0
# The most characters of a reason, which may repeat what was written.
_MAX_REASON: Final = 300


class _Draft(Enum):
    """What happened to a draft since it was last applied."""

    SAME = auto()
    EMPTIED = auto()
    WRITTEN = auto()


class ConfigFile:
    """The configs file of one topic. Any thread may use it; each call may wait for the disk."""

    def __init__(self, engine: LogManager, topic: str, mtime_ns: int) -> None:
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
        """Returns the content that readers see. Raises UnknownTopic."""
        with self._lock:
            return self._drafted().read() if self._is_shown else self._configs()

    def draft(self) -> bytes:
        """Returns the content that a writer sees: the draft, also after it was applied."""
        with self._lock:
            return self._drafted().read()

    def _configs(self) -> bytes:
        return render.properties(self._resolved().changed)

    def _resolved(self) -> Resolved:
        """Returns the topic's configs. Raises UnknownTopic, also if another topic now has its
        name."""
        if self._engine.incarnation(self._topic) != self._incarnation:
            raise UnknownTopic(self._topic)
        return self._engine.topic_config(self._topic)

    def put_aside(self) -> None:
        """Hides the file for a moment after it was removed or renamed, unless one is created
        before. The configs are retained."""
        self._aside_until = monotonic() + _ASIDE_SECONDS

    # -- drafts ---------------------------------------------------------------------------------

    def open(self, *, empty: bool) -> None:
        """Adds a writer; `empty`: it starts with an empty draft."""
        with self._lock:
            self._writers += 1
            self._aside_until = 0.0
            if empty:
                self._truncate(0)

    def write(self, position: int | None, data: Data) -> None:
        """Writes to the draft at `position`, None for the end. Raises TooLarge."""
        with self._lock:
            draft = self._drafted()
            draft.write(len(draft) if position is None else position, data)
            self._state, self._is_shown = _Draft.WRITTEN, True

    def truncate(self, size: int) -> None:
        """Truncates the draft. Raises TooLarge."""
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
            self._draft = Buffer(self._configs())
        return self._draft

    def _drop_draft(self) -> None:
        self._draft, self._state, self._is_shown = None, _Draft.SAME, False

    def apply(self) -> None:
        """Applies the draft after a write. Raises Invalid, and then changes nothing.

        A draft that was only emptied is not applied yet: a shell truncates a file and closes one of
        its descriptors before it runs the program that writes to it.
        """
        with self._lock:
            if self._state is _Draft.WRITTEN:
                self._is_shown = False
                self._apply(self._drafted().read())
                self._state = _Draft.SAME

    def close(self) -> None:
        """Removes a writer; after the last one the draft is discarded. Raises Invalid."""
        with self._lock:
            self._writers -= 1
            if self._writers:
                return
            emptied = self._state is _Draft.EMPTIED
            self._drop_draft()
            if emptied:
                self._apply(b"")

    def replace(self, data: bytes, attributes: KeptAttributes) -> None:
        """Replaces the file by one with `data`, as rename(2) does. Raises Invalid, and then changes
        nothing."""
        with self._lock:
            self._apply(data)
            self.attributes = replace(attributes)
            self._drop_draft()
            self._aside_until = 0.0

    def resize(self, size: int) -> None:
        """Applies the content cut to `size`, as truncate(2) does. Raises Invalid or TooLarge."""
        with self._lock:
            cut = Buffer(self._drafted().read() if self._is_shown else self._configs())
            cut.truncate(size)
            self._apply(cut.read())
            self._drop_draft()

    def _apply(self, data: bytes) -> None:
        given = parse(self._topic, data)
        shown = self._resolved()
        kept = self._engine.stored_configs(self._topic)
        changes = differences(self._topic, given, shown, kept)
        if changes:
            try:
                self._engine.set_topic_config(self._topic, changes)
            except ConfigError as error:
                raise _invalid(self._topic, given.get(error.name), error) from None
        self.attributes.mtime_ns = time.time_ns()


class ConfigFileHandle(WriteHandle):
    """A writer's handle; it can also read if the kernel permits."""

    def __init__(self, file: ConfigFile, *, empty: bool, appends: bool) -> None:
        """`empty`: starts with an empty draft; `appends`: every write appends."""
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
        self._file.apply()

    def sync(self) -> None:
        self._file.apply()

    def close(self) -> None:
        self._file.close()


def parse(topic: str, data: bytes) -> dict[str, Property]:
    """Returns the configs in `data` by name; the last of a name wins. Raises Invalid with the line
    number for a line that is not a config or has a value that Kafka would reject."""
    found: dict[str, Property] = {}
    try:
        for each in iter_properties(data):
            _check(topic, each)
            found[each.key] = each
    except CorruptError as error:  # its text includes the line number
        raise Invalid(f"{topic}/config.properties, {error}") from None
    return found


def _check(topic: str, given: Property) -> None:
    if not given.is_separated:
        raise _invalid(topic, given, ConfigError(given.key, "no value; a line is name=value"))
    try:
        check_topic_configs({given.key: given.value})
    except ConfigError as error:
        raise _invalid(topic, given, error) from None


def differences(
    topic: str, given: Mapping[str, Property], shown: Resolved, kept: Mapping[str, str]
) -> dict[str, str | None]:
    """Returns the changes that give a topic the configs `given`, when the file showed `shown` and
    `kept` are the topic's own; None as a value removes one of its own.

    A value that is already in effect does not become the topic's own, wherever it comes from.
    """
    said = topic_config(Configs(topic_file={name: of.value for name, of in given.items()}))
    changes: dict[str, str | None] = {}
    for name, text in said.changed.items():
        if shown.changed.get(name) == text:
            continue
        if shown.sources.get(name) is ConfigSource.RUN:
            error = ConfigError(name, "was set with -c and is fixed until the mount ends")
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
