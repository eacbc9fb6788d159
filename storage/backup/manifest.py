"""The manifest of a point in time: every file of the log directories, in pieces of objects.

A manifest is JSON with one file or object per line, so that a person finds with grep where the
bytes of a file are. It is hostile input: no name leads out of its directory, and no piece out of
its object.

    {"format": "kafkafs-backup-point", "version": 1, "time": "2026-11-26T19:00:00.000Z",
     "topics": [],
     "logDirs": [{"path": "/data", "uid": 1000, "gid": 1000, "mode": 493, "files": [
       {"path": "orders-0/00000000000000000000.log", "size": 900, "mtimeNs": 1, "source": [1, 2, 3],
        "pieces": [["orders-0/00000000000000000000.log.0-900.3f2a…", 0, 900]]}]}],
     "objects": [
       {"name": "orders-0/00000000000000000000.log.0-900.3f2a…", "size": 900, "sha256": "3f2a…"}],
     "leftOut": [{"path": "/data/.lock", "why": "…"}], "damage": [],
     "sha256": "…"}

`sha256` at the end is that of all bytes before its line. `source` (inode, mtime and ctime in ns)
tells the next run whether a file can have changed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..clock import milliseconds, time_text
from ..errors import CorruptError
from ..io.openat import is_name
from ..wording import printable

FORMAT: Final = "kafkafs-backup-point"
VERSION: Final = 1
#: A manifest of a million files has about 300 MiB.
MAX_MANIFEST_BYTES: Final = 1 << 30

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_CHECKSUM: Final = b'\n"sha256": "'
_MAX_SIZE: Final = 2**63 - 1
_MAX_MODE: Final = 0o7777
_MAX_ID: Final = 2**32 - 1


class Piece(NamedTuple):
    """Bytes [`position`, `position + size`) of an object."""

    object: str
    position: int
    size: int


class SourceState(NamedTuple):
    """The state of a source file when it was copied: if it is the same again, so are its bytes."""

    inode: int
    mtime_ns: int
    ctime_ns: int


class StoredObject(NamedTuple):
    """An object of the repository. `name`: below `objects/`, a directory and a file. `sha256`: in
    hexadecimal digits."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a log directory. `path`: its name, or that of its partition's directory and its
    own. `source` is None if the bytes are not those of a file of the source."""

    path: str
    size: int
    mtime_ns: int
    pieces: Sequence[Piece]
    source: SourceState | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "size": self.size,
            "mtimeNs": self.mtime_ns,
            "source": self.source,
            "pieces": self.pieces,
        }


@dataclass(frozen=True, slots=True)
class StoredLogDir:
    """A log directory: where it was, its owner and permissions, and its files."""

    path: str
    uid: int
    gid: int
    mode: int
    files: Sequence[StoredFile]


class Noted(NamedTuple):
    """Something that was left out or is damaged, and why or how."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Point:
    """Log directories at `time_ms`, in ms since 1970. `topics`: those that were selected, () if the
    point has all."""

    time_ms: int
    log_dirs: Sequence[StoredLogDir]
    objects: Mapping[str, StoredObject]
    topics: Sequence[str] = ()
    left_out: Sequence[Noted] = ()
    damage: Sequence[Noted] = field(default=())

    @property
    def files(self) -> Iterator[StoredFile]:
        for log_dir in self.log_dirs:
            yield from log_dir.files

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)


def format_manifest(point: Point) -> bytes:
    """Returns the bytes of a point's manifest."""
    body = b"".join(line.encode("utf-8", "surrogatepass") for line in _lines(point))
    digest = hashlib.sha256(body).hexdigest()
    return body + _CHECKSUM[1:] + f'{digest}"}}\n'.encode()


def _lines(point: Point) -> Iterator[str]:
    head = {
        "format": FORMAT,
        "version": VERSION,
        "time": time_text(point.time_ms),
        "topics": point.topics,
    }
    yield f"{_json(head)[:-1]},\n"
    yield '"logDirs": ['
    for number, each in enumerate(point.log_dirs):
        of_dir = {"path": each.path, "uid": each.uid, "gid": each.gid, "mode": each.mode}
        yield f'{"," if number else ""}\n{_json(of_dir)[:-1]}, "files": ['
        yield from _items(file.as_json() for file in each.files)
        yield "]}"
    yield '],\n"objects": ['
    yield from _items(each._asdict() for each in point.objects.values())
    for name, noted in (("leftOut", point.left_out), ("damage", point.damage)):
        yield f'],\n"{name}": ['
        yield from _items(each._asdict() for each in noted)
    yield "],\n"


def _items(items: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for number, item in enumerate(items):
        yield f"{',' if number else ''}\n{_json(item)}"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(", ", ": "))


def parse_manifest(data: bytes) -> Point:
    """Parses a manifest. Raises CorruptError if it is not one that `format_manifest` can return."""
    at = data.rfind(_CHECKSUM) + 1
    if at == 0:
        raise CorruptError("not a manifest of a backup, or cut off: it does not end in a checksum")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"not a manifest of a backup: {error}") from None
    parser = _Parser(_object(found, "the manifest"))
    if found.get("format") != FORMAT:
        raise CorruptError(f"not a manifest of a backup: its format is not {FORMAT}")
    if found.get("version") != VERSION:
        raise CorruptError(
            f"a manifest of version {printable(str(found.get('version')))}, which a newer kafkafs"
            f" wrote: this one reads version {VERSION}"
        )
    if found.get("sha256") != hashlib.sha256(data[:at]).hexdigest():
        raise CorruptError("a manifest whose SHA-256 is not that of its bytes: it was changed")
    return parser.point()


class _Parser:
    """Checks everything that JSON does not."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._found = found
        self._objects: dict[str, StoredObject] = {}

    def point(self) -> Point:
        found = self._found
        try:
            time_ms = milliseconds(_text(found, "time"))
        except ValueError as error:
            raise CorruptError(str(error)) from None
        for each in _list(found, "objects"):
            stored = self._stored_object(_object(each, "an object"))
            if stored.name in self._objects:
                raise CorruptError(f"two objects are named {printable(stored.name)}")
            self._objects[stored.name] = stored
        return Point(
            time_ms,
            [self._log_dir(_object(each, "a log directory")) for each in _list(found, "logDirs")],
            self._objects,
            tuple(_each_text(_list(found, "topics"), "a topic")),
            _noted(_list(found, "leftOut")),
            _noted(_list(found, "damage")),
        )

    def _stored_object(self, found: Mapping[str, Any]) -> StoredObject:
        name = _text(found, "name")
        parts = name.split("/")
        if len(parts) != 2 or not all(map(is_name, parts)):
            raise CorruptError(f"not the name of an object: {printable(name)!r}")
        sha256 = _text(found, "sha256")
        if _SHA256.fullmatch(sha256) is None:
            raise CorruptError(f"object {printable(name)} has no SHA-256")
        return StoredObject(name, _number(found, "size"), sha256)

    def _log_dir(self, found: Mapping[str, Any]) -> StoredLogDir:
        files = [self._file(_object(each, "a file")) for each in _list(found, "files")]
        paths = {file.path for file in files}
        if len(paths) < len(files):
            raise CorruptError("two files of a log directory have the same path")
        above = {path.partition("/")[0] for path in paths if "/" in path}
        if not above.isdisjoint(paths):
            raise CorruptError("a file of a log directory has the path of a directory")
        return StoredLogDir(
            _text(found, "path"),
            _number(found, "uid", _MAX_ID),
            _number(found, "gid", _MAX_ID),
            _number(found, "mode", _MAX_MODE),
            files,
        )

    def _file(self, found: Mapping[str, Any]) -> StoredFile:
        path, size = _text(found, "path"), _number(found, "size")
        parts = path.split("/")
        if len(parts) > 2 or not all(map(is_name, parts)):
            raise CorruptError(f"not the path of a file of a log directory: {printable(path)!r}")
        pieces = [self._piece(path, each) for each in _list(found, "pieces")]
        if sum(piece.size for piece in pieces) != size:
            raise CorruptError(f"the pieces of {printable(path)} do not add up to its size")
        return StoredFile(path, size, _number(found, "mtimeNs"), pieces, _source(found))

    def _piece(self, path: str, found: Any) -> Piece:
        is_piece = isinstance(found, list) and len(found) == 3 and isinstance(found[0], str)
        if not is_piece or not all(map(_is_size, found[1:])):
            raise CorruptError(f"{printable(path)} has a malformed piece")
        piece = Piece(*found)
        stored = self._objects.get(piece.object)
        if stored is None:
            raise CorruptError(f"{printable(path)} has a piece of an object that is not listed")
        if piece.size == 0 or piece.position + piece.size > stored.size:
            raise CorruptError(f"{printable(path)} has a piece that is not within its object")
        return piece


def _object(found: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise CorruptError(f"{what} is not a JSON object")
    return found


def _list(found: Mapping[str, Any], name: str) -> list[Any]:
    value = found.get(name)
    if not isinstance(value, list):
        raise CorruptError(f"{name} is not a JSON array")
    return value


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise CorruptError(f"{name} is not a text")
    return value


def _each_text(values: Iterable[Any], what: str) -> Iterator[str]:
    for value in values:
        if not isinstance(value, str):
            raise CorruptError(f"{what} is not a text")
        yield value


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_SIZE


def _number(found: Mapping[str, Any], name: str, most: int = _MAX_SIZE) -> int:
    value = found.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise CorruptError(f"{name} is not a number from 0 to {most}")
    return value


def _source(found: Mapping[str, Any]) -> SourceState | None:
    value = found.get("source")
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 3 or not all(type(n) is int for n in value):
        raise CorruptError("source is not three numbers")
    return SourceState(*value)


def _noted(found: Sequence[Any]) -> list[Noted]:
    each = [_object(item, "a note") for item in found]
    return [Noted(_text(item, "path"), _text(item, "why")) for item in each]
