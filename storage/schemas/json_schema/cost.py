"""How often a validator may apply schemas to one place of a datum.

A schema of a few lines can require billions of applications: `a` is allOf of `b` and `b`, `b` of
`c` and `c`, and so on. A validator cannot be interrupted, so the number is bounded beforehand. It
remembers the results of references that lead back to what contains them; these count once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

#: The number for a reference that cannot be followed here.
UNBOUNDED: Final = 1 << 62
#: Keywords with a schema, or a list of schemas, for the same place of the datum.
_IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "extends")
_IN_PLACE_BY_NAME: Final = ("dependentSchemas", "dependencies")
#: Keywords with one schema, or one for each place, for places inside it.
_INSIDE: Final = (
    "additionalProperties", "additionalItems", "items", "contains", "propertyNames",
    "unevaluatedProperties", "unevaluatedItems", "prefixItems",
)  # fmt: skip
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
#: The times that what is beside an unevaluated… keyword is applied for it.
_UNEVALUATED_TIMES: Final = 3
#: The validator knows the schemas of schemas, which contain themselves.
_META: Final = ("http://json-schema.org/", "https://json-schema.org/")
_META_APPLICATIONS: Final = 100

#: A schema, and the URI to which its references are relative.
_At = tuple[str, dict[str, Any]]
#: The applications to the place itself, and the most to any place inside it.
_Count = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Cost:
    """`applications`: a bound of the number. `is_recursive`: schemas contain themselves; without
    remembering results, the number would be multiplied on each level."""

    applications: int
    is_recursive: bool


def cost_of(base: str, root: Any, documents: Mapping[str, Any]) -> Cost:
    """Returns the cost of the schema `root`, whose URI is `base`; `documents`: by URI, those that
    it refers to."""
    counter = _Counter({**documents, base: root})
    return Cost(max(counter.count(base, root)), counter.is_recursive)


class _Counter:
    def __init__(self, documents: Mapping[str, Any]) -> None:
        self.is_recursive = False
        self._roots = [each for each in documents.values() if isinstance(each, dict)]
        #: What URIs may mean: all that it could be, as any object with an id may be a schema.
        self._named: dict[str, list[_At]] = {}
        for uri, document in documents.items():
            self._add_names(uri, document)
        #: By the id of a schema; None while it is being counted.
        self._counts: dict[int, _Count | None] = {}

    def _add_names(self, base: str, document: Any) -> None:
        if isinstance(document, dict):
            self._named.setdefault(base, []).append((base, document))
        stack = [(base, document)]
        while stack:
            base, found = stack.pop()
            if isinstance(found, list):
                stack += [(base, each) for each in found]
            if not isinstance(found, dict):
                continue
            inner = _base_of(base, found)
            if inner != base:
                self._named.setdefault(inner, []).append((inner, found))
            for keyword in ("$id", "id", "$anchor", "$dynamicAnchor"):
                name = found.get(keyword)
                if isinstance(name, str):
                    uri = joined(inner, name if "id" in keyword else f"#{name}")
                    self._named.setdefault(uri, []).append((inner, found))
            stack += [(inner, each) for each in found.values()]

    def count(self, base: str, root: Any) -> _Count:
        if not isinstance(root, dict):
            return 1, 0
        stack: list[tuple[_At, _Parts | None]] = [((base, root), None)]
        while stack:
            (base, schema), parts = stack.pop()
            if parts is not None:
                self._counts[id(schema)] = self._sum(schema, parts)
                continue
            if id(schema) in self._counts:
                self.is_recursive |= self._counts[id(schema)] is None
                continue
            self._counts[id(schema)] = None
            parts = self._parts(_base_of(base, schema), schema)
            stack.append(((base, schema), parts))
            stack += [(each, None) for each in parts.schemas()]
        return self._known(root)

    def _known(self, schema: dict[str, Any]) -> _Count:
        return self._counts[id(schema)] or (1, 1)

    def _sum(self, schema: dict[str, Any], parts: _Parts) -> _Count:
        times = _UNEVALUATED_TIMES if any(each in schema for each in _UNEVALUATED) else 1
        place, below = 1 + times * parts.unknown, times * parts.unknown
        for _, each in parts.in_place:
            at, inside = self._known(each)
            place, below = place + times * at, below + times * inside
        for group in parts.inside:
            below += times * max((max(self._known(each)) for _, each in group), default=1)
        return min(place, UNBOUNDED), min(below, UNBOUNDED)

    def _parts(self, base: str, schema: dict[str, Any]) -> _Parts:
        parts = _Parts([], [])
        for keyword in _REFERENCES:
            if isinstance(schema.get(keyword), str):
                found, unknown = self._referenced(base, schema[keyword])
                parts.in_place += found
                parts.unknown += unknown
        values = [schema.get(keyword) for keyword in _IN_PLACE]
        for value in (*values, *(_values(schema.get(keyword)) for keyword in _IN_PLACE_BY_NAME)):
            parts.in_place += _schemas(base, value)
        parts.inside = [
            _schemas(base, _values(schema.get("properties"))),
            *(_schemas(base, each) for each in _values(schema.get("patternProperties"))),
            *(_schemas(base, schema[keyword]) for keyword in _INSIDE if keyword in schema),
        ]
        return parts

    def _referenced(self, base: str, reference: str) -> tuple[list[_At], int]:
        """Returns what a reference may mean, or else the applications that it may cost."""
        uri = joined(base, reference)
        if uri in self._named:
            return self._named[uri], 0
        where, fragment = urldefrag(uri)
        roots = self._named.get(where) or [(where, each) for each in self._roots]
        found = [(at, pointed(root, fragment)) for at, root in roots]
        schemas = [(at, each) for at, each in found if isinstance(each, dict)]
        if schemas or any(isinstance(each, bool) for _, each in found):
            return schemas, 0
        return [], _META_APPLICATIONS if where.startswith(_META) else UNBOUNDED


@dataclass(slots=True)
class _Parts:
    """The schemas in a schema: for the same place, and, in groups of which one is applied, for a
    place inside; `unknown`: the applications of references that lead elsewhere."""

    in_place: list[_At]
    inside: list[list[_At]]
    unknown: int = 0

    def schemas(self) -> Iterator[_At]:
        yield from self.in_place
        for group in self.inside:
            yield from group


def _base_of(base: str, schema: dict[str, Any]) -> str:
    for keyword in ("$id", "id"):
        name = schema.get(keyword)
        if isinstance(name, str):
            return urldefrag(joined(base, name)).url or base
    return base


def joined(base: str, reference: str) -> str:
    """Returns a reference as an absolute URI, without an empty fragment."""
    if reference.startswith("#"):
        return (urldefrag(base).url + reference).removesuffix("#")
    try:
        return urljoin(base, reference).removesuffix("#")
    except ValueError:
        return reference


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []


def _schemas(base: str, value: Any) -> list[_At]:
    """Returns the schema, or the schemas of a list, without those that are true or false."""
    found = value if isinstance(value, list) else [value]
    return [(base, each) for each in found if isinstance(each, dict)]


def pointed(root: Any, fragment: str) -> Any:
    """Returns what a JSON pointer means, None if it is none or leads nowhere."""
    if fragment and not fragment.startswith("/"):
        return None
    for step in fragment.split("/")[1:]:
        step = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(root, list) and step.isdigit():
            root = root[int(step)] if int(step) < len(root) else None
        else:
            root = root.get(step) if isinstance(root, dict) else None
    return root
