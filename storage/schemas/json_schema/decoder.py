"""Decodes JSON datums: parses them and validates them against their JSON Schema.

Confluent's deserializers for Python and .NET validate, that for Java does if it is told to. As in
them, `format` is not checked. A schema can import only those that it refers to; nothing is fetched.
A pattern is matched in linear time, or, if it looks ahead, behind or back, in so many steps.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ...errors import DatumError, SchemaError
from ..schema import Schema, require_extra
from .cost import cost_of, joined

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

#: How deep values may be nested, in a datum and in a schema.
MAX_DEPTH: Final = 256
#: The most text that a schema may have, with all that it refers to, in characters.
MAX_TEXT: Final = 8 << 20
#: The steps that a pattern may take back in a string.
_MAX_BACKTRACKS: Final = 10_000
#: The memory of a pattern.
_MAX_PATTERN_BYTES: Final = 2 << 20
#: What is shown of why a value does not fit, in characters.
_MAX_WHY: Final = 300
#: Where schemas without an id lie, so that relative references mean something.
BASE: Final = "http://kafkafs.invalid/"
#: The places, each of a schema, from which references are followed.
_MAX_PLACES: Final = 10_000
_DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"
#: The schemas that may be applied to one datum, all places counted: some seconds.
_MAX_APPLICATIONS: Final = 10**8
_MAX_AT_ONE_PLACE: Final = 10**6
#: The same when it is not known how often, only to say where a value does not fit.
_MAX_FOR_REASON: Final = 10**6
_ESCAPED_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def compile_json_schema(schema: Schema, referenced: Mapping[str, Schema]) -> JsonDecoder:
    """Returns the decoder of a schema, which refers to `referenced` by name. Raises SchemaError."""
    require_extra(schema, "jsonschema_rs")
    return JsonDecoder(schema, referenced)


class JsonDecoder:
    """Decodes datums of one schema. `document`: the schema itself, `uri`: to what its references
    are relative; `documents`: by their URIs, those that it refers to."""

    __slots__ = ("_cost", "_validator", "document", "documents", "uri")

    def __init__(self, schema: Schema, referenced: Mapping[str, Schema]) -> None:
        """Raises SchemaError."""
        import jsonschema_rs

        if sum(len(each.text) for each in (schema, *referenced.values())) > MAX_TEXT:
            raise SchemaError(schema.name, f"it has more than {MAX_TEXT:,} characters")
        self.document = _document(schema, schema)
        self.documents = _resources(schema, self.document, referenced)
        document = self.document
        self.uri = joined(BASE, _id(document)).partition("#")[0]
        if isinstance(document, dict) and not isinstance(document.get("$schema"), str):
            document = {**document, "$schema": _DRAFT_7}  # as the registry itself does
        try:
            self._validator: Validator = jsonschema_rs.validator_for(
                document,
                base_uri=BASE,
                retriever=self._retrieve,
                validate_formats=False,
                pattern_options=jsonschema_rs.FancyRegexOptions(
                    backtrack_limit=_MAX_BACKTRACKS, size_limit=_MAX_PATTERN_BYTES
                ),
            )
        except jsonschema_rs.ValidationError as error:
            raise SchemaError(schema.name, _why(error)) from None
        except ValueError as error:
            raise SchemaError(schema.name, _shortened(str(error))) from None
        self._cost = cost_of(BASE, self.document, self.documents)
        if self._cost.applications > _MAX_AT_ONE_PLACE:
            why = f"to one value it may apply more than {_MAX_AT_ONE_PLACE:,} schemas"
            raise SchemaError(schema.name, why)

    @property
    def title(self) -> str:
        """The schema's title, by which RecordNameStrategy names the record type; "" for none."""
        title = self.document.get("title") if isinstance(self.document, dict) else None
        return title if isinstance(title, str) else ""

    def _retrieve(self, uri: str) -> Any:
        if uri not in self.documents:
            raise ValueError("the schema has no such reference")
        return self.documents[uri]

    def to_json(self, payload: bytes | memoryview) -> Any:
        """Returns a datum as JSON values. Raises DatumError if it is not JSON, or does not fit."""
        data = bytes(payload)
        value = parse_json(data)
        places = 1 + data.count(b",") + data.count(b"{") + data.count(b"[")
        if places * self._cost.applications > _MAX_APPLICATIONS:
            raise DatumError("it is too large to be validated against a schema of this complexity")
        try:
            if self._validator.is_valid(value):
                return value
        except ValueError as error:
            raise DatumError(_shortened(str(error))) from None
        raise DatumError(self._reason(value))

    def _reason(self, value: Any) -> str:
        """Returns why a value does not fit. The validator remembers nothing while it finds out."""
        from jsonschema_rs import ValidationError

        cost = self._cost
        if not cost.is_recursive or cost.applications ** depth_of(value) <= _MAX_FOR_REASON:
            try:
                self._validator.validate(value)
            except ValidationError as error:
                return _why(error)
        return "it does not fit its schema"


def parse_json(data: bytes) -> Any:
    """Parses JSON. Of members with the same name the last one counts. Raises DatumError for what is
    not JSON, is nested too deeply, or what JSON values cannot hold: a number outside the range of
    double, half of a surrogate pair."""
    try:
        text = data.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise DatumError(f"not JSON: not UTF-8 at position {error.start}") from None
    try:
        value = _parser.decode(text)
    except json.JSONDecodeError as error:
        raise DatumError(f"not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:  # of int, for thousands of digits
        raise DatumError("a number has too many digits") from None
    except RecursionError:
        raise DatumError(_TOO_DEEP) from None
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and depth_of(value) > MAX_DEPTH:
        raise DatumError(_TOO_DEEP)
    if _ESCAPED_SURROGATE.search(data):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise DatumError("a string has half of a surrogate pair") from None
    return value


_TOO_DEEP: Final = f"values are nested more than {MAX_DEPTH} deep"


def depth_of(value: Any) -> int:
    """Returns how deep arrays and objects are nested."""
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [part for each in level for part in _parts(each)]
    return depth


def _parts(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


def _refused_constant(name: str) -> Any:
    raise DatumError(f"not JSON: {name}")


def _float(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise DatumError(f"the number {_shortened(text)} is outside the range of double")
    return number


_parser: Final = json.JSONDecoder(parse_constant=_refused_constant, parse_float=_float)


def _document(schema: Schema, of: Schema) -> Any:
    """Returns a schema's JSON; a SchemaError names `schema`."""
    try:
        return parse_json(of.text.encode())
    except UnicodeEncodeError:
        why = "it has half of a surrogate pair"
    except DatumError as error:
        why = error.why
    raise SchemaError(schema.name, why if of is schema else f"{of.name}, to which it refers: {why}")


def _resources(schema: Schema, root: Any, referenced: Mapping[str, Schema]) -> dict[str, Any]:
    """Returns the referenced schemas by all URIs under which they may be looked for: a reference is
    relative to the id of the schema that contains it, or to the name of that schema."""
    documents = {name: _document(schema, each) for name, each in referenced.items()}
    found = dict(documents)
    stack = [(schema, root, BASE)]
    for name, each in referenced.items():
        found.setdefault(joined(BASE, name), documents[name])
        stack.append((each, documents[name], joined(BASE, name)))
    seen: set[tuple[int, str]] = set()
    while stack and len(seen) < _MAX_PLACES:
        containing, document, base = stack.pop()
        for place in {base, joined(base, _id(document)).partition("#")[0]}:
            if (id(containing), place) in seen:
                continue
            seen.add((id(containing), place))
            for reference in containing.references:
                other = referenced.get(reference.name)
                if other is not None:
                    uri = joined(place, reference.name)
                    found.setdefault(uri, documents[reference.name])
                    stack.append((other, documents[reference.name], uri))
    return found


def _id(document: Any) -> str:
    if not isinstance(document, dict):
        return ""
    found = document.get("$id", document.get("id"))
    return found if isinstance(found, str) else ""


def _why(error: ValidationError) -> str:
    path = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in error.instance_path)
    return _shortened(f"${path}: {error.message}" if path else str(error.message))


def _shortened(text: str) -> str:
    """Keeps the start and the end, which often says what is wrong with what is before it."""
    if len(text) <= _MAX_WHY:
        return text
    return f"{text[: _MAX_WHY // 2]} … {text[-_MAX_WHY // 2 :]}"
