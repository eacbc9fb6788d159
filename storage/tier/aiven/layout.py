"""The objects of Aiven's plugin (ObjectKeyFactory of Aiven-Open/tiered-storage-for-apache-kafka):

    <prefix><topic>-<topic id>/<partition>/<20-digit base offset>-<segment id>.<suffix>

with the suffixes log, indexes, and rsm-manifest, which is written last.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from ...errors import CorruptError, SegmentGone
from ...format.files.names import is_legal_topic
from ...format.layout import MAX_INT32, MAX_OFFSET
from ...format.messages.remote_log_metadata import TopicIdPartition
from ...format.primitives import is_uuid_text
from ...io.assembled import FileOfBytes, file_status
from ...io.directory import Directory, ReadableFile
from ..layout import ObjectId, RemoteFileKind, TierLayout
from ..segments import RemoteSegment
from .chunks import ChunkedLog
from .encryption import OVERHEAD, Keyring, SegmentCipher
from .manifest import MAX_MANIFEST_BYTES, Manifest, parse_manifest

_TOPIC: Final = re.compile(r"(.+)-([A-Za-z0-9_-]{22})")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_MANIFEST_NAME: Final = re.compile(r"([0-9]{20})-([A-Za-z0-9_-]{22})\.rsm-manifest")
_MANIFEST, _LOG, _INDEXES = "rsm-manifest", "log", "indexes"
_MANIFESTS_KEPT: Final = 10_000
_MAX_INDEX_BYTES: Final = 64 << 20


class AivenLayout(TierLayout):
    """The objects below a directory whose names start with `prefix`, which may have slashes."""

    def __init__(self, directory: Directory, prefix: str, keys: Mapping[str, str]) -> None:
        """`keys`: files with RSA private keys by their id, as of Keyring."""
        super().__init__()
        *folders, self._prefix = prefix.split("/")
        for name in filter(None, folders):
            directory = directory.child(name)
        self._directory = directory
        self._keyring = Keyring(keys)
        self._lock = threading.Lock()  # guards _manifests
        self._manifests: dict[ObjectId, Manifest] = {}

    @staticmethod
    def is_at(directory: Directory) -> bool:
        """Returns whether a directory has objects of this layout, without a prefix. Raises as
        listing it does."""
        for entry in directory.list():
            if not entry.is_dir or _parse_topic(entry.name) is None:
                continue
            below = directory.child(entry.name)
            for number in below.list():
                if number.is_dir and any(
                    _MANIFEST_NAME.fullmatch(each.name) for each in below.child(number.name).list()
                ):
                    return True
        return False

    def partitions(self) -> Sequence[TopicIdPartition]:
        found = []
        for entry in sorted(self._directory.list(), key=lambda each: each.name):
            if not entry.is_dir or not entry.name.startswith(self._prefix):
                continue
            parsed = _parse_topic(entry.name[len(self._prefix) :])
            if parsed is None:
                continue
            for each in self._directory.child(entry.name).list():
                if each.is_dir and _NUMBER.fullmatch(each.name) and int(each.name) <= MAX_INT32:
                    found.append(TopicIdPartition(*parsed, int(each.name)))
        return found

    def objects(self, partition: TopicIdPartition) -> Sequence[ObjectId]:
        try:
            names = sorted(entry.name for entry in self.directory(partition).list())
        except SegmentGone:
            return ()
        parsed = filter(None, map(_MANIFEST_NAME.fullmatch, names))
        return [
            ObjectId(partition, each[2], int(each[1]))
            for each in parsed
            if int(each[1]) <= MAX_OFFSET and is_uuid_text(each[2])
        ]

    def path(self, found: ObjectId, kind: RemoteFileKind) -> str:
        suffix = _LOG if kind is RemoteFileKind.LOG else _INDEXES
        return self.directory(found.partition).path_of(_object_name(found, suffix))

    def described(self, found: ObjectId) -> RemoteSegment | None:
        segment = self._manifest(found).segment
        if segment is None:
            return None
        if (segment.id, segment.start_offset) != (found.id, found.start_offset):
            what = f"it describes segment {segment.id} from offset {segment.start_offset}"
            path = self.directory(found.partition).path_of(_object_name(found, _MANIFEST))
            raise CorruptError(f"{what}, not the one that it is named after", path)
        return segment

    def status(self, found: ObjectId, kind: RemoteFileKind) -> os.stat_result:
        manifest = self._manifest(found)
        directory = self.directory(found.partition)
        if kind is RemoteFileKind.LOG:
            there = directory.stat(_object_name(found, _LOG))
            identity = (there.st_dev, there.st_ino)
            return file_status(identity, manifest.chunks.file_size, there.st_mtime_ns)
        _, size = self._index(found, manifest, kind)
        there = directory.stat(_object_name(found, _INDEXES))
        overhead = OVERHEAD if manifest.key is not None and size else 0
        identity = _identity(f"{there.st_dev} {there.st_ino} {kind}")
        return file_status(identity, max(size - overhead, 0), there.st_mtime_ns)

    def open(self, found: ObjectId, kind: RemoteFileKind) -> ReadableFile:
        manifest = self._manifest(found)
        directory = self.directory(found.partition)
        if kind is RemoteFileKind.LOG:
            opened = directory.open(_object_name(found, _LOG))
            self._check_size(opened, manifest)
            status = self.status(found, kind)
            return ChunkedLog(opened, manifest, self._cipher(opened.path, manifest), status)
        position, size = self._index(found, manifest, kind)
        opened = directory.open(_object_name(found, _INDEXES))
        data = self._decrypted(opened, manifest, position, size)
        there = self.status(found, kind)
        return FileOfBytes(opened.path, data, (there.st_dev, there.st_ino), there.st_mtime_ns)

    def _index(self, found: ObjectId, manifest: Manifest, kind: RemoteFileKind) -> tuple[int, int]:
        """Returns where an index is. Raises SegmentGone if there is none."""
        there = manifest.indexes.get(kind)
        if there is None or (kind is RemoteFileKind.TRANSACTION_INDEX and not there[1]):
            raise SegmentGone(self.path(found, kind))
        return there

    def _decrypted(
        self, opened: ReadableFile, manifest: Manifest, position: int, size: int
    ) -> bytes:
        """Returns the content of an index."""
        if size > _MAX_INDEX_BYTES:
            raise CorruptError(f"an index of {size} bytes", opened.path, position)
        data = opened.read(position, size)
        if len(data) < size:
            what = f"an index of {size} bytes in the manifest, {len(data)} in the object"
            raise CorruptError(what, opened.path, position)
        cipher = self._cipher(opened.path, manifest)
        if cipher is None or not data:
            return data
        try:
            return cipher.decrypt(data)
        except ValueError as error:
            raise CorruptError(f"an index: {error}", opened.path, position) from None

    def _cipher(self, path: str, manifest: Manifest) -> SegmentCipher | None:
        if manifest.key is None:
            return None
        try:
            return self._keyring.cipher(manifest.key)
        except CorruptError as error:
            raise error.at(path) from None

    def _check_size(self, opened: ReadableFile, manifest: Manifest) -> None:
        """Reports an object of another size than that of its chunks; those that are there can be
        read."""
        expected = int(manifest.chunks.positions[-1])
        if opened.size() != expected:
            what = f"has {opened.size()} bytes, the chunks in its manifest have {expected}"
            self.report(str(CorruptError(what, opened.path)))

    def _manifest(self, found: ObjectId) -> Manifest:
        with self._lock:
            known = self._manifests.get(found)
        if known is not None:
            return known
        directory, name = self.directory(found.partition), _object_name(found, _MANIFEST)
        try:
            known = parse_manifest(directory.read_small(name, MAX_MANIFEST_BYTES))
        except CorruptError as error:
            raise error.at(directory.path_of(name)) from None
        with self._lock:
            if len(self._manifests) >= _MANIFESTS_KEPT:
                self._manifests.clear()
            self._manifests[found] = known
        return known

    def directory(self, partition: TopicIdPartition) -> Directory:
        name = f"{self._prefix}{partition.topic}-{partition.topic_id}"
        return self._directory.child(name).child(str(partition.partition))


def _object_name(found: ObjectId, suffix: str) -> str:
    return f"{found.start_offset:020d}-{found.id}.{suffix}"


def _parse_topic(name: str) -> tuple[str, str] | None:
    parsed = _TOPIC.fullmatch(name)
    if parsed is None or not is_legal_topic(parsed[1]) or not is_uuid_text(parsed[2]):
        return None
    return parsed[1], parsed[2]


def _identity(text: str) -> tuple[int, int]:
    from hashlib import blake2b  # which few commands need

    return -1, int.from_bytes(blake2b(text.encode(), digest_size=7).digest())
