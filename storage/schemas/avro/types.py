"""The types of an Avro schema, parsed from its JSON (the specification's "Schema Declaration").

A named type is one object wherever it is used, so a recursive schema is a graph with cycles. Names
are resolved within the schema and those that it refers to. Attributes that a reader does not need
are ignored, as are logical types that do not fit their type; both as the specification requires.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from ...errors import SchemaError
from ..schema import Schema


class Kind(IntEnum):
    """The kinds of types, as the kernel `avro` numbers them."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    STRING = 7
    FIXED = 8
    ENUM = 9
    ARRAY = 10
    MAP = 11
    UNION = 12
    RECORD = 13


#: In place of a default that a field does not have.
NO_DEFAULT: Final = object()
#: Types inside each other, and types in all, that a schema may have.
_MAX_NESTING: Final = 100
_MAX_TYPES: Final = 100_000
#: The largest text of a schema that is parsed, in characters.
MAX_TEXT: Final = 16 << 20

_PRIMITIVES: Final = {
    "null": Kind.NULL,
    "boolean": Kind.BOOLEAN,
    "int": Kind.INT,
    "long": Kind.LONG,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "bytes": Kind.BYTES,
    "string": Kind.STRING,
}
#: The kinds that a logical type annotates. "decimal" has further conditions.
_LOGICAL: Final = {
    "decimal": (Kind.BYTES, Kind.FIXED),
    "uuid": (Kind.STRING, Kind.FIXED),
    "date": (Kind.INT,),
    "time-millis": (Kind.INT,),
    "time-micros": (Kind.LONG,),
    "timestamp-millis": (Kind.LONG,),
    "timestamp-micros": (Kind.LONG,),
    "timestamp-nanos": (Kind.LONG,),
    "local-timestamp-millis": (Kind.LONG,),
    "local-timestamp-micros": (Kind.LONG,),
    "local-timestamp-nanos": (Kind.LONG,),
}
_UUID_SIZE: Final = 16
#: The largest precision of a decimal; Python converts no longer numbers to text.
_MAX_PRECISION: Final = 4000


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record. `default`: as in the schema's JSON, or NO_DEFAULT."""

    name: str
    type: AvroType
    default: Any = NO_DEFAULT
    aliases: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class AvroType:
    """A type. `name`: the full name of a named type, otherwise that of its kind.

    `logical`: the logical type, "" for none, with `precision` and `scale` of a decimal. `size` is
    that of a fixed, in bytes. `parts`: the items of an array, the values of a map, or the branches
    of a union. `default`: the symbol that replaces unknown ones, None if there is none.
    """

    kind: Kind
    name: str
    aliases: frozenset[str] = frozenset()
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    default: str | None = None
    parts: tuple[AvroType, ...] = ()
    fields: tuple[AvroField, ...] = ()

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def is_named(self) -> bool:
        return self.kind in (Kind.RECORD, Kind.ENUM, Kind.FIXED)


def parse_avro(schema: Schema, referenced: Mapping[str, Schema]) -> AvroType:
    """Returns the type that a schema describes; `referenced` has all schemas that it refers to, by
    name. Raises SchemaError."""
    parser = _Parser(referenced)
    return parser.parse_schema(schema)


@dataclass(slots=True)
class _Parser:
    """Parses a schema and, when a name requires it, those that it refers to."""

    referenced: Mapping[str, Schema]
    names: dict[str, AvroType] = field(default_factory=dict)
    where: str = ""
    count: int = 0
    #: The names of referenced schemas whose parsing has begun.
    begun: set[str] = field(default_factory=set)

    def parse_schema(self, schema: Schema) -> AvroType:
        before, self.where = self.where, schema.name
        if len(schema.text) > MAX_TEXT:
            raise self._error(f"its text has more than {MAX_TEXT:,} characters")
        try:
            declaration = json.loads(schema.text)
        except ValueError as error:
            if schema.text.strip() in _PRIMITIVES:  # as Java accepts it
                declaration = schema.text.strip()
            else:
                raise self._error(f"not JSON: {error}") from error
        except RecursionError as error:
            raise self._error("its JSON is nested too deeply") from error
        parsed = self._type(declaration, "", 0)
        self.where = before
        return parsed

    def _error(self, what: str) -> SchemaError:
        return SchemaError(self.where, what)

    def _type(self, declaration: Any, namespace: str, depth: int) -> AvroType:
        self.count += 1
        if depth > _MAX_NESTING or self.count > _MAX_TYPES:
            raise self._error("it has too many types, or types nested too deeply")
        if isinstance(declaration, str):
            return self._named(declaration, namespace)
        if isinstance(declaration, list):
            return self._union(declaration, namespace, depth)
        if not isinstance(declaration, dict):
            raise self._error(f"a type is a name, a list or an object, not {declaration!r:.80}")
        kind = declaration.get("type")
        if not isinstance(kind, str):  # {"type": {"type": …}}, as Java accepts it
            return self._type(kind, namespace, depth + 1)
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(kind, declaration, namespace, depth)
        if kind in ("array", "map"):
            part = declaration.get("items" if kind == "array" else "values")
            of = Kind.ARRAY if kind == "array" else Kind.MAP
            return AvroType(of, kind, parts=(self._type(part, namespace, depth + 1),))
        if kind in _PRIMITIVES:
            made = AvroType(_PRIMITIVES[kind], kind)
            self._annotate(made, declaration)
            return made
        return self._named(kind, namespace)

    def _named(self, name: str, namespace: str) -> AvroType:
        """Returns the type that a name means."""
        if name in _PRIMITIVES:
            return AvroType(_PRIMITIVES[name], name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (full, name):
            if found := self._find(candidate):
                return found
        raise self._error(f"no type is named {full!r:.200}")

    def _find(self, name: str) -> AvroType | None:
        """Returns the type of this full name, also of a referenced schema."""
        if name not in self.names:
            waiting = [each for each in self.referenced if each not in self.begun]
            # The schema that was referred to by this name first; each of the others can define it.
            for each in sorted(waiting, key=lambda key: key != name):
                if each in self.begun:
                    continue
                self.begun.add(each)
                self.parse_schema(self.referenced[each])
                if name in self.names:
                    break
        return self.names.get(name)

    def _union(self, branches: list[Any], namespace: str, depth: int) -> AvroType:
        parts = tuple(self._type(branch, namespace, depth + 1) for branch in branches)
        if any(part.kind is Kind.UNION for part in parts):
            raise self._error("a union is directly inside another")
        return AvroType(Kind.UNION, "union", parts=parts)

    def _definition(
        self, kind: str, declaration: dict[str, Any], namespace: str, depth: int
    ) -> AvroType:
        """Defines a named type. It is known by its name before its fields are parsed."""
        name = declaration.get("name")
        if not isinstance(name, str) or not name:
            raise self._error(f"a {kind} has no name")
        if "." in name:
            namespace = name.rpartition(".")[0]
        elif isinstance(given := declaration.get("namespace"), str):
            namespace = given
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in self.names:
            raise self._error(f"{full!r:.200} is defined twice")
        aliases = frozenset(
            alias if "." in alias or not namespace else f"{namespace}.{alias}"
            for alias in _texts(declaration.get("aliases"))
        )
        made = self.names[full] = AvroType(_DEFINED[kind], full, aliases)
        if made.kind is Kind.ENUM:
            self._add_symbols(made, declaration)
        elif made.kind is Kind.FIXED:
            size = declaration.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 31:
                raise self._error(f"the size of {full!r:.200} is {size!r:.80}")
            made.size = size
            self._annotate(made, declaration)
        else:
            self._add_fields(made, declaration, namespace, depth)
        return made

    def _add_symbols(self, made: AvroType, declaration: dict[str, Any]) -> None:
        symbols = declaration.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
            raise self._error(f"the symbols of {made.name!r:.200} are no list of strings")
        made.symbols = tuple(symbols)
        default = declaration.get("default")
        made.default = default if default in made.symbols else None

    def _add_fields(
        self, made: AvroType, declaration: dict[str, Any], namespace: str, depth: int
    ) -> None:
        fields = declaration.get("fields")
        if not isinstance(fields, list):
            raise self._error(f"{made.name!r:.200} has no list of fields")
        parsed: dict[str, AvroField] = {}
        for each in fields:
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or name in parsed:
                raise self._error(f"a field of {made.name!r:.200} has no name, or that of another")
            of = self._type(each.get("type"), namespace, depth + 1)
            default = each.get("default", NO_DEFAULT)
            parsed[name] = AvroField(name, of, default, _texts(each.get("aliases")))
        made.fields = tuple(parsed.values())

    def _annotate(self, made: AvroType, declaration: dict[str, Any]) -> None:
        """Adds the logical type, unless it does not fit."""
        logical = declaration.get("logicalType")
        if not isinstance(logical, str) or made.kind not in _LOGICAL.get(logical, ()):
            return
        if logical == "decimal":
            precision = _integer(declaration.get("precision"))
            scale = _integer(declaration.get("scale", 0))
            if not 0 <= scale <= precision <= _MAX_PRECISION or precision == 0:
                return
            made.precision, made.scale = precision, scale
        if logical == "uuid" and made.kind is Kind.FIXED and made.size != _UUID_SIZE:
            return
        made.logical = logical


_DEFINED: Final = {
    "record": Kind.RECORD,
    "error": Kind.RECORD,
    "enum": Kind.ENUM,
    "fixed": Kind.FIXED,
}


def _texts(values: object) -> tuple[str, ...]:
    return (
        tuple(each for each in values if isinstance(each, str)) if isinstance(values, list) else ()
    )


def _integer(value: object) -> int:
    """Returns an integer of the schema, -1 if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else -1
