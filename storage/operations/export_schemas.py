"""Exports the schemas of a registry as requests that another one accepts.

A registry in mode IMPORT accepts versions with the ids and numbers that they had. The requests are
those of its REST API, in an order in which it accepts them: what a schema refers to is registered
before it; then softly deleted versions are deleted again; configs follow, since a stricter
compatibility could refuse old versions; and modes are last, since READONLY refuses everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from ..errors import SchemaError
from ..log_dirs.engine import Engine
from ..schemas.registry.image import RegistryImage
from ..schemas.registry.state import RegisteredVersion, VersionKey
from ..schemas.schema import (
    LATEST,
    SchemaDeletion,
    SchemaType,
    qualified,
    qualified_like,
)
from .request import PartitionFailed
from .schemas import registry_of

#: The script that sends the requests, and the file that lists them.
SCRIPT: Final = "import.sh"
REQUESTS: Final = "requests.tsv"
_SCHEMAS: Final = "schemas/"
_IMPORT: Final = {"mode": "IMPORT"}
_DEFAULT_MODE: Final = "READWRITE"
# The fields of a config with another name in the REST API (ConfigUpdateRequest).
_CONFIG_NAMES: Final = {"compatibilityLevel": "compatibility"}


@dataclass(frozen=True, slots=True)
class ExportSchemas:
    """Exports the versions of these subjects and all that they refer to, or everything if none is
    named. `with_deleted`: also hard-deleted versions, which become usable again, unless their id or
    number is in use."""

    subjects: tuple[str, ...] = ()
    with_deleted: bool = False

    @property
    def writes(self) -> bool:
        return False

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        return ()


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file of the export: its path in the directory, and its content."""

    name: str
    data: bytes
    is_executable: bool = False

    @property
    def is_schema(self) -> bool:
        """Whether it registers a version."""
        return self.name.startswith(_SCHEMAS)

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "size": len(self.data)}


def export_schemas(
    engine: Engine, request: ExportSchemas, progress: object = None
) -> Iterator[ExportedFile | PartitionFailed]:
    """Yields what cannot be exported, then the files. Raises UnknownSchema."""
    image = registry_of(engine)
    for problem in image.problems:
        yield PartitionFailed.of(problem)
    order = _Order(image, request)
    yield from (PartitionFailed.of(error) for error in order.failed)
    requests = _Requests()
    requests.add("PUT", "/mode?force=true", "mode/import.json", _IMPORT)
    for number, version in enumerate(order.versions, 1):
        name = f"{_SCHEMAS}{number:06}.json"
        requests.add("POST", _versions_path(version), name, _body(version))
    for version in order.versions:
        if version.deletion is SchemaDeletion.SOFT:
            requests.add("DELETE", f"{_versions_path(version)}/{version.version}")
    whole = not request.subjects
    subjects = {each.subject for each in order.versions}
    for number, (name, config) in enumerate(sorted(image.configs.items()), 1):
        if whole or name in subjects:
            body = {_CONFIG_NAMES.get(key, key): value for key, value in config.items()}
            body.pop("subject", None)
            requests.add("PUT", _place("config", name), f"config/{number:06}.json", body)
    modes = {"": _DEFAULT_MODE, **(image.modes if whole else {})}
    last_global = sorted(modes.items(), key=lambda each: (each[0] == "", each[0]))
    for number, (name, mode) in enumerate(last_global, 1):
        requests.add("PUT", _place("mode", name), f"mode/{number:06}.json", {"mode": mode})
    yield from requests.files()


def _versions_path(version: RegisteredVersion) -> str:
    """Returns the path of a subject's versions; __EMPTY is the name of the subject without one
    (QualifiedSubject)."""
    return f"/subjects/{quote(version.subject or '__EMPTY', safe='')}/versions"


def _place(kind: str, subject: str) -> str:
    return f"/{kind}/{quote(subject, safe='')}" if subject else f"/{kind}"


def _body(version: RegisteredVersion) -> dict[str, Any]:
    """Returns a RegisterSchemaRequest."""
    schema = version.schema
    body: dict[str, Any] = {"version": version.version, "id": schema.id}
    if schema.type != SchemaType.AVRO:  # so that registries older than 5.5 accept it, too
        body["schemaType"] = schema.type
    if schema.references:
        body["references"] = [each.as_json() for each in schema.references]
    if version.metadata is not None:
        body["metadata"] = version.metadata
    if version.rule_set is not None:
        body["ruleSet"] = version.rule_set
    return {**body, "schema": schema.text}


class _Requests:
    """Requests in the order in which they must be sent, and their bodies."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._files: list[ExportedFile] = []

    def add(
        self, method: str, path: str, name: str = "", body: Mapping[str, Any] | None = None
    ) -> None:
        self._lines.append(f"{method}\t{path}\t{name}\n")
        if body is not None:
            text = json.dumps(body, ensure_ascii=True, indent=1)
            self._files.append(ExportedFile(name, text.encode() + b"\n"))

    def files(self) -> Iterator[ExportedFile]:
        """Yields the bodies, and what needs them last: an export that was interrupted has no
        script."""
        yield from self._files
        yield ExportedFile(REQUESTS, "".join(self._lines).encode())
        yield ExportedFile(SCRIPT, _SCRIPT.encode(), is_executable=True)


class _Order:
    """The versions to export, each after those that it refers to. `failed`: the errors of those
    that cannot be registered."""

    def __init__(self, image: RegistryImage, request: ExportSchemas) -> None:
        self.versions: list[RegisteredVersion] = []
        self.failed: list[SchemaError] = []
        self._known = _exported(image, request)
        self._source = image.including_deleted() if request.with_deleted else image
        self._done: dict[VersionKey, bool] = {}
        named = [each for name in request.subjects for each in image.of_subject(name)]
        wanted = named or image.versions
        for version in sorted(wanted, key=lambda each: (each.schema.id or 0, each.subject)):
            key = (version.subject, version.version)
            if self._known.get(key) == version:
                self._add(key)

    def _add(self, key: VersionKey) -> bool:
        """Adds a version after what it refers to. Returns whether it can be registered."""
        if key in self._done:
            return self._done[key]
        version = self._known[key]
        try:
            self._source.referenced(version.schema)  # raises if anything is missing or cyclic
        except SchemaError as error:
            self.failed.append(error)
            self._done[key] = False
            return False
        self._done[key] = True
        for each in version.schema.references:
            parent = qualified(version.schema.context, "")
            other = (qualified_like(parent, each.subject), each.version)
            if each.version != LATEST and other in self._known:
                self._add(other)
        self.versions.append(version)
        return True


def _exported(image: RegistryImage, request: ExportSchemas) -> dict[VersionKey, RegisteredVersion]:
    """Returns the versions that may be exported, by subject and version: those of the registry,
    and of the hard-deleted ones the last with a number, if nothing else has its id."""
    known = dict(image.versions_by_key)
    if not request.with_deleted:
        return known
    texts = {(each.schema.context, each.schema.id): each.schema.text for each in known.values()}
    for each in sorted(image.versions, key=lambda each: -each.offset):
        place = (each.schema.context, each.schema.id)
        is_free = texts.setdefault(place, each.schema.text) == each.schema.text
        if each.deletion is SchemaDeletion.HARD and is_free:
            known.setdefault((each.subject, each.version), each)
    return known


_SCRIPT: Final = """#!/bin/sh
# Registers the schemas in this directory with the same ids and versions in another registry, whose
# URL is the argument or in REGISTRY:
#
#     sh import.sh http://localhost:8081
#     CURL_OPTIONS="--user name:password" sh import.sh https://registry.example.com
#
# The registry must be empty, and allow modes to be changed (mode.mutability=true). It is in mode
# IMPORT meanwhile. requests.tsv lists the requests in their order: method, path, and the file with
# the body. The first one that fails ends the script; it can be run again.
set -eu
registry=${1:-${REGISTRY:?usage: sh import.sh URL}}
cd "$(dirname "$0")"
tab=$(printf '\\t')
newline='
'
while IFS="$tab" read -r method path body; do
    set -- --silent --show-error --write-out '\\n%{http_code}' --request "$method"
    if [ -n "$body" ]; then
        set -- "$@" --header "Content-Type: application/vnd.schemaregistry.v1+json" --data "@$body"
    fi
    # Without quotes, CURL_OPTIONS is split into words.
    # shellcheck disable=SC2086
    answer=$(curl ${CURL_OPTIONS:-} "$@" "${registry%/}$path" </dev/null)
    case "$method ${answer##*"$newline"}" in
    *" 2"?? | "DELETE 404") ;; # 404: an earlier run has deleted it
    *)
        printf 'import.sh: %s %s %s failed: %s\\n' "$method" "$path" "$body" "$answer" >&2
        exit 1
        ;;
    esac
done <requests.tsv
"""
