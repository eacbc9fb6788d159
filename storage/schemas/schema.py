"""A schema, what it refers to, and where schemas come from.

A schema is named as Confluent's registry names it: by an id, which is unique in a context; by a
GUID, which follows from the schema itself; and by a subject and a version. A qualified subject is
`:.context:subject`; without a context it is of the default one (QualifiedSubject).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from typing import Any, Final, Protocol
from uuid import UUID

from ..errors import SchemaError

#: What installs the modules that decode Protobuf and JSON Schema.
INSTALL: Final = "pip install 'kafkafs[schemas]'"
#: The default context.
DEFAULT_CONTEXT: Final = "."
_PREFIX: Final = ":."
#: The columns that a schema may make, all levels counted: their number can be exponential in that
#: of its types.
MAX_COLUMNS: Final = 10_000
#: Of a type with more fields than this, most data have few: fields that none of some data has are
#: not looked for in each of them.
FEW_FIELDS: Final = 32
#: The version of a reference to the subject's latest version.
LATEST: Final = -1


class SchemaType(StrEnum):
    """The types of schemas that are decoded. A registry may have others, as a plain string."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """What a schema imports: `name`, as the schema itself calls it, is version `version` of
    `subject`."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema. `type`: a SchemaType, or another string; `text`: the schema itself, for Protobuf a
    .proto file, "" if there is only `descriptor_set`, a serialized FileDescriptorSet. `id` is None
    for one that no registry knows, and `guid` for one whose GUID is unknown. `context`: that of
    its id, in which its references are looked up. `where`: what messages call it, such as
    `schema 12` or a path. `message`: the full name of the Protobuf message that data without
    message indexes are of, "" for the first one."""

    type: str
    text: str
    references: tuple[SchemaReference, ...] = ()
    id: int | None = None
    guid: UUID | None = None
    context: str = DEFAULT_CONTEXT
    where: str = field(default="", compare=False)
    descriptor_set: bytes | None = field(default=None, repr=False)
    message: str = ""

    @property
    def name(self) -> str:
        """What messages call the schema."""
        return self.where or ("schema" if self.id is None else f"schema {self.id}")


class SchemaDeletion(StrEnum):
    """Whether a version of a subject was deleted: softly, so that the registry still serves its
    id; or hard, so that it is only on the disk, until compaction."""

    NONE = "none"
    SOFT = "soft"
    HARD = "hard"


@dataclass(frozen=True, slots=True, order=True)
class SubjectVersion:
    """A version of a subject. `subject` is qualified unless it is of the default context."""

    subject: str
    version: int
    deletion: SchemaDeletion = SchemaDeletion.NONE

    @property
    def is_deleted(self) -> bool:
        return self.deletion is not SchemaDeletion.NONE


class SchemaSource(Protocol):
    """Where decoders find the schemas that records name."""

    def by_id(self, schema_id: int, subject: str = "") -> Schema | None:
        """Returns the schema with this id, as the registry does for a deserializer that asks for it
        with the record's subject: that of the subject in any context, otherwise that of the
        default context. Returns None if there is none."""

    def by_guid(self, guid: UUID) -> Schema | None:
        """Returns the schema with this GUID, None if there is none."""

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """Returns all schemas that a schema refers to, directly or not, by the name under which
        they are referred to; each stands after those that it refers to itself. Raises
        MissingReference, and SchemaError if references form a cycle or are too many."""

    def subjects_of(self, schema: Schema) -> Sequence[SubjectVersion]:
        """Returns the versions of subjects that are this schema, sorted."""

    def newest(self, subject: str) -> Schema | None:
        """Returns the schema of a subject's highest version: of those not deleted, or if all are,
        of all. Aliases apply. Returns None if there is no such subject."""

    def missing(self, schema_id: int | None, guid: UUID | None) -> str:
        """Returns why there is no schema with this id or GUID: for `error` of a record."""


def require_extra(schema: Schema, *modules: str) -> None:
    """Raises SchemaError if one of the modules that decode it is not installed."""
    for name in modules:
        try:
            found = find_spec(name)
        except ModuleNotFoundError:  # a package that it is in
            found = None
        if found is None:
            why = f"decoding it needs {name}, which is not installed: {INSTALL}"
            raise SchemaError(schema.name, why)


def context_of(subject: str) -> tuple[str, str]:
    """Splits a qualified subject into its context and the subject (QualifiedSubject)."""
    if not subject.startswith(_PREFIX):
        return DEFAULT_CONTEXT, subject
    context, _, name = subject[1:].partition(":")
    return context, name


def qualified(context: str, subject: str) -> str:
    """Returns a subject qualified with a context, unless it is the default one."""
    return subject if context == DEFAULT_CONTEXT else f":{context}:{subject}"


def qualified_like(parent: str, subject: str) -> str:
    """Returns the subject that a reference or an alias of the subject `parent` means: without a
    context of its own it is in that of `parent` (QualifiedSubject.qualifySubjectWithParent)."""
    if context_of(subject)[0] != DEFAULT_CONTEXT:
        return subject
    return qualified(context_of(parent)[0], context_of(subject)[1])


def guid_of(
    text: str,
    references: Sequence[SchemaReference] = (),
    metadata: Mapping[str, Any] | None = None,
    rule_set: Mapping[str, Any] | None = None,
) -> UUID:
    """Returns the GUID of a schema: the MD5 of its text, its references, and its metadata and rules
    as in the registry's JSON (Schema.updateHash and those that it calls)."""
    md5 = hashlib.md5(_utf8(text), usedforsecurity=False)
    for each in references:
        md5.update(_utf8(each.name) + _utf8(each.subject))
        md5.update((each.version & 0xFFFFFFFF).to_bytes(4, "big"))
    if metadata is not None:
        md5.update(b"\x01")  # to distinguish it from none
        md5.update(_map_bytes(metadata.get("tags")))
        md5.update(_map_bytes(metadata.get("properties")))
        md5.update(_set_bytes(metadata.get("sensitive")))
    if rule_set is not None:
        md5.update(b"\x01")
        for name in ("migrationRules", "domainRules", "encodingRules"):
            for rule in rule_set.get(name) or ():
                md5.update(_rule_bytes(rule))
        md5.update(_utf8(rule_set.get("enableAt")))
    return UUID(bytes=md5.digest())


def _utf8(text: object) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else b""


def _java_order(text: object) -> bytes:
    """The sort key by which Java orders strings: their UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass") if isinstance(text, str) else b""


def _set_bytes(texts: object) -> bytes:
    """Returns a SortedSet's strings."""
    if not isinstance(texts, list):
        return _utf8(texts)
    return b"".join(
        map(_utf8, sorted({each for each in texts if isinstance(each, str)}, key=_java_order))
    )


def _map_bytes(texts: object) -> bytes:
    """Returns the keys and values of a SortedMap, whose values are strings or sets of them."""
    if not isinstance(texts, Mapping):
        return b""
    keys = sorted(texts, key=_java_order)
    return b"".join(_utf8(key) + _set_bytes(texts[key]) for key in keys)


def _rule_bytes(rule: object) -> bytes:
    if not isinstance(rule, Mapping):
        return b""
    before = (_utf8(rule.get(name)) for name in ("name", "doc", "kind", "mode", "type"))
    after = (_utf8(rule.get(name)) for name in ("expr", "onSuccess", "onFailure"))
    inner = (_set_bytes(rule.get("tags")), _map_bytes(rule.get("params")))
    return b"".join((*before, *inner, *after, b"\x01" if rule.get("disabled") is True else b""))
