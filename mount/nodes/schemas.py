"""`.kafkafs/schemas/<id>.avsc` and `.kafkafs/subjects/<subject>/<version>`: the schemas of a
registry, also deleted ones that are still on the disk.

A subject's name is percent-encoded like a key's. The id of a schema in another context than the
default one is preceded by that, as in `:.staging:7.avsc`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kafkafs.storage import UnknownSchema, qualified

from ..catalog import Catalog, SchemaPath
from ..node import Node, missing
from ..vfs import render
from ..vfs.errnos import NoSuchName, Stale
from ..vfs.inodes import SCHEMAS_PLACE, SUBJECTS_NUMBER, InodeKind, pack
from ..vfs.key_names import name_of_text, named
from .record import mtime_ns
from .small_directory import SmallDirectory
from .small_files import ComputedFile, DescribedDocument

if TYPE_CHECKING:
    from kafkafs.storage import RegisteredVersion, RegistryImage

_EXTENSIONS: Final = {"AVRO": ".avsc", "PROTOBUF": ".proto", "JSON": ".json"}
#: Of a type that only a plugin of the registry knows.
_OTHER: Final = ".txt"


class _RegistryNode(SmallDirectory):
    """A directory of the registry. The kernel looks its names up each time it needs them."""

    def child_may_block(self, name: str) -> bool:
        return True

    def image(self) -> RegistryImage:
        return self.catalog.registry.image()


class SchemasDirectory(_RegistryNode):
    """`schemas/`: a file for each id."""

    def child(self, name: str) -> SchemaFile:
        there = dict(self._named())
        if name not in there:
            raise missing(name, "schemas", there)
        return there[name]

    def children(self) -> Iterator[tuple[str, SchemaFile]]:
        return self._named()

    def _named(self) -> Iterator[tuple[str, SchemaFile]]:
        for (context, number), version in self.image().schemas().items():
            extension = _EXTENSIONS.get(version.schema.type, _OTHER)
            name = name_of_text(qualified(context, f"{number}{extension}"))
            path = SchemaPath(context=context, schema_id=number)
            yield name, SchemaFile(self.catalog, path, version)


class SubjectsDirectory(_RegistryNode):
    """`subjects/`: a directory for each subject."""

    def child(self, name: str) -> SubjectDirectory:
        image = self.image()
        found = named(name, image.subjects)
        if found is None:
            raise NoSuchName(name, UnknownSchema(name, image.subjects).__str__)
        return SubjectDirectory(self.catalog, found)

    def children(self) -> Iterator[tuple[str, SubjectDirectory]]:
        for name in self.image().subjects:
            yield name_of_text(name), SubjectDirectory(self.catalog, name)


class SubjectDirectory(_RegistryNode):
    """`<subject>/`: a file for each version. Of several with a number, the last one counts."""

    def __init__(self, catalog: Catalog, subject: str) -> None:
        parent = pack(InodeKind.TOP, 0, SUBJECTS_NUMBER)
        super().__init__(catalog, _inode(catalog, SchemaPath(subject)), parent)
        self.subject = subject

    def child(self, name: str) -> SchemaFile:
        there = self._versions()
        if name not in there:
            raise missing(name, f"subject {self.subject}", there)
        return self._file(there[name])

    def children(self) -> Iterator[tuple[str, SchemaFile]]:
        for name, version in self._versions().items():
            yield name, self._file(version)

    def _versions(self) -> Mapping[str, RegisteredVersion]:
        """Returns the versions by number. Raises UnknownSchema."""
        return {str(each.version): each for each in self.image().of_subject(self.subject)}

    def _file(self, version: RegisteredVersion) -> SchemaFile:
        return SchemaFile(self.catalog, SchemaPath(self.subject, version.version), version)


class SchemaFile(ComputedFile):
    """A schema's text, as its version was registered."""

    def __init__(self, catalog: Catalog, path: SchemaPath, version: RegisteredVersion) -> None:
        data = version.schema.text.encode("utf-8", "surrogatepass")
        mtime = max(version.timestamp, 0)
        inode = _inode(catalog, path)
        super().__init__(catalog.contents, inode, mtime_ns(mtime), lambda: data)
        self._version = version

    def fixed(self) -> DescribedDocument:
        data = self._compute()

        def make(inode: int) -> DescribedDocument:
            return DescribedDocument(inode, self._mtime_ns, data, self.xattrs)

        found = self._contents.file((self.inode, self._mtime_ns, data), make)
        assert isinstance(found, DescribedDocument)
        return found

    def xattrs(self) -> Mapping[str, bytes]:
        """Returns the facts about the version."""
        version, schema = self._version, self._version.schema
        facts = {
            "subject": version.subject,
            "version": version.version,
            "id": schema.id,
            "guid": schema.guid,
            "type": schema.type,
            "deleted": version.deletion,
            "references": ",".join(f"{each.subject}/{each.version}" for each in schema.references),
            "offset": version.offset,
        }
        return {
            render.XATTR_PREFIX + name: str(value).encode("utf-8", "surrogatepass")
            for name, value in facts.items()
            if value != ""
        }


def _inode(catalog: Catalog, path: SchemaPath) -> int:
    return pack(InodeKind.TOP, SCHEMAS_PLACE, catalog.schema_paths.number(path))


def schema_node(catalog: Catalog, number: int) -> Node:
    """Returns the node of an inode number of SCHEMAS_PLACE. Raises Stale if it is not remembered,
    or if the file's schema is gone. A directory is returned even if the subject is gone; looking a
    name up in it then fails."""
    path = catalog.schema_paths[number]
    if path.schema_id is not None:
        found = catalog.registry.image().schemas().get((path.context, path.schema_id))
        if found is None:
            raise Stale
        return SchemaFile(catalog, path, found)
    directory = SubjectDirectory(catalog, path.subject)
    if path.version is None:
        return directory
    try:
        return directory.child(str(path.version))
    except (NoSuchName, UnknownSchema):
        raise Stale from None
