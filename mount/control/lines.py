"""The requests that `.kafkafs/control` accepts, as lines of text and back.

A line is a verb, followed by topics, partitions and options as words, or by a JSON object. Both
ends use this module: the mount parses lines, and the command line forwards requests as lines.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, Final, TypeVar

from kafkafs.storage import (
    AppendedLines,
    AppendLines,
    Compact,
    CompactedLog,
    ConfigureTopic,
    CreatedTopic,
    CreateTopic,
    DeleteTopics,
    Deletion,
    Erase,
    ErasedFile,
    Expire,
    ExpiredSegment,
    FoundLeftover,
    ListDeleted,
    PartitionFailed,
    PartitionsRequest,
    Purge,
    RemovedTopic,
    Request,
    Row,
    Selection,
    TopicConfigs,
    Undelete,
    bytes_as_json,
)

from ..vfs.errnos import Invalid

Q = TypeVar("Q", bound=PartitionsRequest)
J = TypeVar("J", bound=ConfigureTopic | CreateTopic | AppendLines)

# The most digits of an int64.
_OFFSET_DIGITS: Final = 19


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How a request is written: its verb, how a row of the answer is read, and its fields. These
    are options by their words, or values by their names and types in a JSON object."""

    verb: str
    row: Callable[[Mapping[str, Any]], Row]
    options: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, tuple[str, type | UnionType]] = field(default_factory=dict)


_FORMATS: Final[Mapping[type[Request], LineFormat]] = {
    Expire: LineFormat(
        "expire", ExpiredSegment.of_json, {"all": "everything", "dry-run": "dry_run"}
    ),
    Compact: LineFormat(
        "compact",
        CompactedLog.of_json,
        {"all": "everything", "force": "force", "dry-run": "dry_run"},
    ),
    Erase: LineFormat(
        "erase",
        ErasedFile.of_json,
        values={
            "partitions": ("selection", list),
            "keys": ("keys", list),
            "keyPrefix": ("prefix", str | dict),
            "offset": ("offset", int),
            "dryRun": ("dry_run", bool),
        },
    ),
    Purge: LineFormat("purge", FoundLeftover.of_json, {"stray": "strays", "dry-run": "dry_run"}),
    ListDeleted: LineFormat("deleted", Deletion.of_json),
    Undelete: LineFormat("undelete", Deletion.of_json),
    DeleteTopics: LineFormat("delete-topic", RemovedTopic.of_json),
    CreateTopic: LineFormat(
        "create-topic",
        CreatedTopic.of_json,
        values={
            "topic": ("topic", str),
            "partitions": ("partitions", int),
            "settings": ("configs", dict),
            "topicId": ("topic_id", str),
            "unregistered": ("unregistered", bool),
            "register": ("register", bool),
        },
    ),
    ConfigureTopic: LineFormat(
        "configure-topic",
        TopicConfigs.of_json,
        values={"topic": ("topic", str), "changes": ("changes", dict)},
    ),
    AppendLines: LineFormat(
        "append",
        AppendedLines.of_json,
        values={
            "topic": ("topic", str),
            "partition": ("partition", int),
            "format": ("form", str),
            "keySeparator": ("key_separator", str),
            "compression": ("compression", str),
            "batchSize": ("batch_bytes", int),
            "size": ("size", int),
            "lines": ("lines", int),
            "sync": ("sync", bool),
        },
    ),
}


def is_forwardable(request: Request) -> bool:
    """Whether a mount can carry out such a request."""
    return type(request) in _FORMATS


# -- from lines -----------------------------------------------------------------------------------


def selecting(kind: type[Q], words: Sequence[str]) -> Q:
    """Returns the request that the words after its verb select partitions for. A topic named like
    an option is written with a slash, as in `force/`. Raises Invalid."""
    options = _FORMATS[kind].options
    names = [word for word in words if word not in options]
    return kind(_selection(names), **{name: word in words for word, name in options.items()})


def undeleting(words: Sequence[str]) -> Undelete:
    """Returns the request of the words after `undelete`. Raises Invalid."""
    if not 1 <= len(words) <= 2:
        raise Invalid("needs TOPIC or TOPIC/PARTITION, and optionally an OFFSET")
    selection = _selection(words[:1])
    if len(words) == 1:
        return Undelete(selection)
    number = words[1]
    if not (number.isascii() and number.isdigit()) or len(number) > _OFFSET_DIGITS:
        raise Invalid("OFFSET must be a number")
    return Undelete(selection, int(number))


def _selection(words: Sequence[str]) -> Selection:
    try:
        return Selection.of(*words)
    except ValueError:
        raise Invalid("needs TOPIC or TOPIC/PARTITION") from None


def described(kind: type[J], text: str) -> J:
    """Returns the request that a JSON object describes. Raises Invalid."""
    try:
        return kind(**_values(kind, text))
    except ValueError as error:
        raise Invalid(str(error)) from None


def erasing(text: str) -> Erase:
    """Returns the request that a JSON object describes. Raises Invalid."""
    found = _values(Erase, text)
    if "keys" in found:
        found["keys"] = frozenset(map(_bytes_of, found["keys"]))
    if "prefix" in found:
        found["prefix"] = _bytes_of(found["prefix"])
    names = found.pop("selection", [])
    if not all(isinstance(name, str) for name in names):
        raise Invalid("needs TOPIC or TOPIC/PARTITION")
    try:
        return Erase(_selection(names), **found)
    except ValueError as error:
        raise Invalid(str(error)) from None


def _bytes_of(value: Any) -> bytes:
    """Returns the bytes that `bytes_as_json` has shown. Raises Invalid."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(value["base64"], validate=True)
    except (KeyError, TypeError, ValueError):
        raise Invalid('a key must be a string or {"base64": "…"}') from None


def _values(kind: type[Request], text: str) -> dict[str, Any]:
    """Returns the values of a JSON object by the names of the request's fields. Raises Invalid."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Invalid(f"needs a JSON object: {error}") from None
    if not isinstance(found, dict):
        raise Invalid("needs a JSON object")
    known = _FORMATS[kind].values
    for name, value in found.items():
        if name not in known or not isinstance(value, known[name][1]):
            raise Invalid(f"field {name!r} is not one of {', '.join(known)}, or has a wrong type")
    return {known[name][0]: value for name, value in found.items()}


# -- to lines -------------------------------------------------------------------------------------


def lines_of(request: Request) -> list[bytes]:
    """Returns the lines that make a mount carry out the request."""
    form = _FORMATS[type(request)]
    return [
        f"{form.verb} {rest}\n".encode("utf-8", "surrogateescape")
        for rest in _arguments(request, form)
    ]


def _arguments(request: Request, form: LineFormat) -> list[str]:
    if isinstance(request, Undelete):
        offset = "" if request.offset is None else f" {request.offset}"
        return [f"{Selection((name,))}{offset}" for name in request.selection.names]
    if isinstance(request, DeleteTopics):
        kept = " keep-remote" if request.keep_remote else ""
        return [f"{topic}{kept}" for topic in dict.fromkeys(request.topics)]
    if isinstance(request, Erase):
        found: dict[str, Any] = {"partitions": str(request.selection).split()}
        if request.keys:
            found["keys"] = [bytes_as_json(key) for key in sorted(request.keys)]
        if request.prefix is not None:
            found["keyPrefix"] = bytes_as_json(request.prefix)
        if request.offset is not None:
            found["offset"] = request.offset
        return [json.dumps({**found, "dryRun": request.dry_run})]
    if isinstance(request, PartitionsRequest):
        options = [word for word, name in form.options.items() if getattr(request, name)]
        return [" ".join(filter(None, [str(request.selection), *options]))]
    values = {word: getattr(request, name) for word, (name, _) in form.values.items()}
    return [json.dumps(values)]


def row_of(request: Request, row: Mapping[str, Any]) -> Row | PartitionFailed:
    """Returns a row of the answer to the request."""
    if "error" in row:
        return PartitionFailed.of_json(row)
    return _FORMATS[type(request)].row(row)
