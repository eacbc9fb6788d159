"""The settings of topics that kafkafs keeps itself, in a plain file in the log directory's root.

    # comment
    [orders]
    retention.ms = 86400000
    cleanup.policy = compact,delete

A broker's are in its cluster's metadata; where kafkafs is alone there is none. A broker ignores the
file, as every plain file that it does not know. All log directories have the same one, so that any
of them may fail; where they differ, which is when one was offline or was changed by hand, the one
changed last counts.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .config import check_topic_settings
from .disk import Directory
from .durable import WritableDirectory
from .errors import CorruptError, SegmentGone, printable
from .format.names import is_legal_topic
from .small_file import read_value

TOPIC_SETTINGS_FILE = "kafkafs.topics"
# A hundred thousand topics with a few settings each.
MAX_TOPIC_SETTINGS_BYTES = 16 << 20

_HEADER = """\
# Settings of topics, under Kafka's names.
# kafkafs writes this file anew when a setting is changed; edit it when nothing is writing here.
"""

Texts = Mapping[str, str]

# In a setting's name, what makes its line something else.
_NO_NAME = re.compile(r"^[\[#]|=")


class _Parser(configparser.RawConfigParser):
    """One that leaves names as they are written: Kafka's are case-sensitive."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


# What is lost without the file depends on what is in it, so that is for people to decide.
_ADVICE = (
    "mend it, or move the file away, which leaves its topics with their cluster's settings or "
    "Kafka's defaults: retention may then delete what they keep"
)


def parse_topic_settings(data: bytes) -> dict[str, dict[str, str]]:
    """The settings of each topic, as texts by name. Whether there are such settings, and whether
    their values can be used, is not asked here. CorruptError, with the position of the line, for
    what is no such file."""
    parser = _Parser(
        delimiters=("=",), comment_prefixes=("#",), default_section="", empty_lines_in_values=False
    )
    try:
        parser.read_string(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CorruptError(f"not UTF-8; {_ADVICE}", position=error.start) from None
    except configparser.Error as error:
        what = f"{_what(error)}; {_ADVICE}"
        raise CorruptError(what, position=_position(data, error)) from None
    found = {topic: dict(parser.items(topic)) for topic in parser.sections()}
    for topic, settings in found.items():
        at = data.find(f"[{topic}]".encode())
        if not is_legal_topic(topic):
            what = f"{printable(topic)!r} is not the name of a topic; {_ADVICE}"
            raise CorruptError(what, position=at)
        if not can_be_kept(settings):
            what = f"a setting of {topic} is not one line of text; {_ADVICE}"
            raise CorruptError(what, position=at)
    return found


def can_be_kept(settings: Texts) -> bool:
    """Whether settings are in the file what they are outside of it."""
    names_fit = all(name and not _NO_NAME.search(name) for name in settings)
    texts = (*settings, *settings.values())
    return names_fit and all(text.isprintable() and text == text.strip() for text in texts)


def format_topic_settings(settings: Mapping[str, Texts]) -> bytes:
    """What `parse_topic_settings` reads back. Values must not have line breaks in them."""
    lines = [_HEADER]
    for topic in sorted(settings):
        lines.append(f"\n[{topic}]\n")
        lines += [f"{name} = {text}\n" for name, text in sorted(settings[topic].items())]
    return "".join(lines).encode("utf-8")


def changed_settings(settings: Texts, changes: Mapping[str, str | None]) -> dict[str, str]:
    """A topic's `settings` with `changes`, in which None takes one away. ConfigError for a setting
    that no topic has, or a value that Kafka would refuse."""
    given = {name: text.strip() for name, text in changes.items() if text is not None}
    check_topic_settings(given, changes)
    kept = {name: text for name, text in settings.items() if name not in changes}
    return {**kept, **given}


@dataclass(frozen=True, slots=True)
class FoundSettings:
    """What a log directory's file says, and when it was changed, in ns; 0 where there is none."""

    settings: Mapping[str, Texts] = field(default_factory=dict)
    changed_ns: int = 0


def newest(found: Iterable[FoundSettings]) -> FoundSettings:
    """The one that counts; of two that were changed at one time, the first."""
    return max(found, key=lambda each: each.changed_ns, default=FoundSettings())


class TopicSettings:
    """The settings in the files of several log directories, to change. Not for several threads."""

    def __init__(self, directories: Sequence[WritableDirectory]) -> None:
        """Reads the files. CorruptError when one of them is damaged."""
        found = [_read(directory) for directory in directories]
        counts = newest(found)
        self._settings = dict(counts.settings)
        # The directories whose files say something else.
        self.stale = tuple(
            directory
            for directory, each in zip(directories, found, strict=True)
            if each.settings != counts.settings
        )

    def of(self, topic: str) -> Texts:
        """The settings of one topic."""
        return self._settings.get(topic, {})

    def changed(self, topic: str, changes: Mapping[str, str | None]) -> dict[str, str]:
        """The topic's settings with `changes`, in which None takes one away; they are not made.
        ConfigError for a setting that no topic has, or a value that Kafka would refuse."""
        return changed_settings(self.of(topic), changes)

    def replace(self, topic: str, settings: Texts) -> None:
        """Makes `settings` those of the topic, none of them takes it out. `write` follows."""
        others = {name: texts for name, texts in self._settings.items() if name != topic}
        self._settings = {**others, topic: dict(settings)} if settings else others

    def write(self, directory: WritableDirectory) -> None:
        """Puts them into one directory's file, durably."""
        directory.write_atomically(TOPIC_SETTINGS_FILE, format_topic_settings(self._settings))


def _read(directory: Directory) -> FoundSettings:
    try:
        changed_ns = directory.stat(TOPIC_SETTINGS_FILE).st_mtime_ns
        limit = MAX_TOPIC_SETTINGS_BYTES
        settings = read_value(directory, TOPIC_SETTINGS_FILE, limit, parse_topic_settings)
    except SegmentGone:
        return FoundSettings()
    return FoundSettings(settings, changed_ns)


def _what(error: configparser.Error) -> str:
    if isinstance(error, configparser.DuplicateSectionError):
        return f"line {error.lineno}: the topic is there before"
    if isinstance(error, configparser.DuplicateOptionError):
        return f"line {error.lineno}: the topic has the setting before"
    return f"line {_line(error)}: neither a [topic] nor a setting of one"


def _line(error: configparser.Error) -> int:
    """Where it is, from 1."""
    if isinstance(error, configparser.MissingSectionHeaderError):
        return error.lineno
    if isinstance(error, configparser.ParsingError) and error.errors:
        return error.errors[0][0]
    return getattr(error, "lineno", None) or 1


def _position(data: bytes, error: configparser.Error) -> int:
    """Of the first byte of that line."""
    return sum(map(len, data.splitlines(keepends=True)[: _line(error) - 1]))
