"""The topic configs that kafkafs stores itself, in a text file in the log directory's root.

    # comment
    [orders]
    retention.ms = 86400000
    cleanup.policy = compact,delete

A broker keeps configs in its cluster's metadata, which is missing where only kafkafs writes.
Brokers ignore the file, like all files they do not know. Every log directory has the same copy, so
that any of them may fail; if copies differ, because a directory was offline or edited by hand, the
one changed last applies.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import CorruptError, SegmentGone
from ..format.files.names import is_legal_topic
from ..io.directory import Directory
from ..io.durable import WritableDirFd
from ..io.small_file import read_value
from ..wording import printable
from .kafka import check_topic_configs

TOPIC_CONFIGS_FILE = "kafkafs.topics"
# Enough for a hundred thousand topics with a few configs each.
MAX_TOPIC_CONFIGS_BYTES = 16 << 20

_HEADER = """\
# Topic configs, under Kafka's names.
# kafkafs rewrites this file when a config changes; edit it only while nothing is writing here.
"""

Texts = Mapping[str, str]

# What in a config's name would give its line another meaning.
_NO_NAME = re.compile(r"^[\[#]|=")


class _Parser(configparser.RawConfigParser):
    """A parser that preserves the case of names: Kafka's are case-sensitive."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


# What is lost without the file depends on its content, so a person must decide.
_ADVICE = (
    "repair it, or move the file away, which leaves its topics with their cluster's configs or "
    "Kafka's defaults: retention may then delete their records"
)


def parse_topic_configs(data: bytes) -> dict[str, dict[str, str]]:
    """Parses the configs of each topic, as texts by name, without checking that the configs exist
    or that their values are valid. Raises CorruptError, with the position of the line, if the file
    is malformed."""
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
    for topic, configs in found.items():
        at = data.find(f"[{topic}]".encode())
        if not is_legal_topic(topic):
            what = f"{printable(topic)!r} is not a legal topic name; {_ADVICE}"
            raise CorruptError(what, position=at)
        if not can_be_kept(configs):
            what = f"a config of {topic} is not one line of text; {_ADVICE}"
            raise CorruptError(what, position=at)
    return found


def can_be_kept(configs: Texts) -> bool:
    """Returns whether the configs survive being written to the file and read back."""
    names_fit = all(name and not _NO_NAME.search(name) for name in configs)
    texts = (*configs, *configs.values())
    return names_fit and all(text.isprintable() and text == text.strip() for text in texts)


def format_topic_configs(configs: Mapping[str, Texts]) -> bytes:
    """Formats configs so that `parse_topic_configs` reads them back. Values must not contain line
    breaks."""
    lines = [_HEADER]
    for topic in sorted(configs):
        lines.append(f"\n[{topic}]\n")
        lines += [f"{name} = {text}\n" for name, text in sorted(configs[topic].items())]
    return "".join(lines).encode("utf-8")


def changed_configs(configs: Texts, changes: Mapping[str, str | None]) -> dict[str, str]:
    """Returns a topic's `configs` with `changes`, in which None removes a config. Raises
    ConfigError for a config that no topic has, or a value that Kafka would refuse."""
    given = {name: text.strip() for name, text in changes.items() if text is not None}
    check_topic_configs(given, changes)
    kept = {name: text for name, text in configs.items() if name not in changes}
    return {**kept, **given}


@dataclass(frozen=True, slots=True)
class FoundTopicConfigs:
    """The content of a log directory's file, and when it was changed, in ns; 0 if there is none."""

    configs: Mapping[str, Texts] = field(default_factory=dict)
    changed_ns: int = 0


def newest(found: Iterable[FoundTopicConfigs]) -> FoundTopicConfigs:
    """Returns the one that applies: the one changed last, or the first of several changed at the
    same time."""
    return max(found, key=lambda each: each.changed_ns, default=FoundTopicConfigs())


class TopicConfigFiles:
    """The configs in the files of several log directories, for writing. Not thread-safe."""

    def __init__(self, directories: Sequence[WritableDirFd]) -> None:
        """Reads the files. Raises CorruptError if one of them is damaged."""
        found = [read_topic_configs(directory) for directory in directories]
        counts = newest(found)
        self._configs = dict(counts.configs)
        # The directories whose files differ.
        self.stale = tuple(
            directory
            for directory, each in zip(directories, found, strict=True)
            if each.configs != counts.configs
        )

    def of(self, topic: str) -> Texts:
        """Returns the configs of one topic."""
        return self._configs.get(topic, {})

    def changed(self, topic: str, changes: Mapping[str, str | None]) -> dict[str, str]:
        """Returns the topic's configs with `changes`, in which None removes a config, without
        storing them. Raises ConfigError for a config that no topic has, or a value that Kafka would
        refuse."""
        return changed_configs(self.of(topic), changes)

    def replace(self, topic: str, configs: Texts) -> None:
        """Sets the topic's configs in memory; an empty mapping removes the topic. Call `write`
        next."""
        others = {name: texts for name, texts in self._configs.items() if name != topic}
        self._configs = {**others, topic: dict(configs)} if configs else others

    def write(self, directory: WritableDirFd) -> None:
        """Writes the configs to one directory's file, durably."""
        directory.write_atomically(TOPIC_CONFIGS_FILE, format_topic_configs(self._configs))


def read_topic_configs(directory: Directory) -> FoundTopicConfigs:
    """Reads the file of a log directory. Raises CorruptError if it is malformed."""
    try:
        changed_ns = directory.stat(TOPIC_CONFIGS_FILE).st_mtime_ns
        limit = MAX_TOPIC_CONFIGS_BYTES
        configs = read_value(directory, TOPIC_CONFIGS_FILE, limit, parse_topic_configs)
    except SegmentGone:
        return FoundTopicConfigs()
    return FoundTopicConfigs(configs, changed_ns)


def _what(error: configparser.Error) -> str:
    if isinstance(error, configparser.DuplicateSectionError):
        return f"line {error.lineno}: duplicate topic"
    if isinstance(error, configparser.DuplicateOptionError):
        return f"line {error.lineno}: duplicate config"
    return f"line {_line(error)}: neither a [topic] nor a config"


def _line(error: configparser.Error) -> int:
    """Returns the line of the error, from 1."""
    if isinstance(error, configparser.MissingSectionHeaderError):
        return error.lineno
    if isinstance(error, configparser.ParsingError) and error.errors:
        return error.errors[0][0]
    return getattr(error, "lineno", None) or 1


def _position(data: bytes, error: configparser.Error) -> int:
    """Returns the position of the first byte of that line."""
    return sum(map(len, data.splitlines(keepends=True)[: _line(error) - 1]))
