"""Makes file descriptors of .proto files, which are texts that anybody may have written.

protoc, that of grpcio-tools, runs in a process of its own, with limits of time, memory and file
sizes, in a directory that holds only the given texts. protoc itself refuses imports with `..` or an
absolute path, so they can name nothing else.

A registry may also hold a file as the base64 of its FileDescriptorProto, which is what Confluent's
client for Python registers (ProtobufSchema.toProtoFile). Such files are not compiled.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...errors import DatumError, MissingReference, SchemaError
from ..schema import Schema, require_extra
from .pool import well_known
from .walk import check_strings

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

#: The most text that a schema may have, with all that it imports, in bytes.
MAX_TEXT_BYTES: Final = 8 << 20
_MAX_NAME_BYTES: Final = 1000
_MAX_PART_BYTES: Final = 200
_SECONDS: Final = 5
_MEMORY: Final = 1 << 30
_MAX_OUTPUT_BYTES: Final = 64 << 20
#: What is shown of the compiler's complaints, in characters.
_MAX_WHY: Final = 300
#: The results that are kept.
_KEPT: Final = 64
#: Where files lie that a schema may import although nobody gave them.
_COMMON: Final = "google/type/"
_MISSING: Final = re.compile(r"^(\S+): File not found\.$", re.MULTILINE)
# What begins with a file's name. The library logs other lines.
_COMPLAINT: Final = re.compile(r"[^\s:]+:")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
# Sets the limits before anything is parsed. -S leaves out what .pth files would import.
_PROGRAM: Final = """
import resource, sys
where, memory, seconds, size = sys.argv[1], *map(int, sys.argv[2:5])
for limit, most in (
    (resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds),
    (resource.RLIMIT_FSIZE, size), (resource.RLIMIT_CORE, 0),
):
    resource.setrlimit(limit, (most, most))
sys.path.append(where)
from grpc_tools import protoc
sys.exit(protoc.main(["protoc", *sys.argv[5:]]))
"""
# Files that Confluent's registry knows without a reference (ProtobufSchema.KNOWN_DEPENDENCIES).
_CONFLUENT: Final = {
    "confluent/meta.proto": """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """
syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
""",
}

_lock: Final = threading.Lock()  # guards what follows
_kept: Final[dict[bytes, bytes]] = {}


class FileSet:
    """The files of a schema. `main`: the one that data are of; `others`: what it imports, directly
    or not, without what every pool has (`pool.well_known`)."""

    def __init__(self, main: FileDescriptorProto, others: Iterable[FileDescriptorProto]) -> None:
        self.main = main
        self.others = [each for each in others if each.name != main.name]


def file_set(schema: Schema, referenced: Mapping[str, Schema]) -> FileSet:
    """Returns the files of a schema and of those that it refers to, by the names under which they
    are imported. Raises SchemaError, or MissingReference for a file that nobody gave."""
    if schema.descriptor_set is not None:
        return _given_set(schema, schema.descriptor_set)
    references = {name: each for name, each in referenced.items() if name not in well_known()}
    compiled = {name: _descriptor(name, each) for name, each in references.items()}
    texts = {name: each.text for name, each in references.items() if compiled[name] is None}
    binaries = [each for each in compiled.values() if each is not None]
    name = _free_name(references)
    main = _descriptor(name, schema)
    if main is None:
        files = _compiled(schema, name, {**texts, name: schema.text}, binaries)
        return FileSet(files[name], files.values())
    # Only what it imports is compiled, through a file that imports the same.
    binaries.append(main)
    known = {each.name for each in binaries}
    imports = {each for one in binaries for each in one.dependency} - known
    if imports <= well_known().keys():
        return FileSet(main, binaries)
    importer = _free_name({**references, name: schema})
    text = "\n".join(['syntax = "proto3";', *(f"import {_quoted(each)};" for each in imports)])
    files = _compiled(schema, importer, {**texts, importer: text}, binaries[:-1])
    del files[importer]
    return FileSet(main, [*files.values(), *binaries])


def parse_files(schema: Schema, data: bytes) -> list[FileDescriptorProto]:
    """Parses a serialized FileDescriptorSet. Raises SchemaError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    found = FileDescriptorSet()
    try:
        found.ParseFromString(data)
        check_strings(found)
    except (DecodeError, DatumError):
        raise SchemaError(schema.name, "it is not a descriptor set of protoc") from None
    return list(found.file)


def _given_set(schema: Schema, data: bytes) -> FileSet:
    """protoc writes a file after those that it imports, so the last one is that of the schema."""
    files = parse_files(schema, data)
    if not files:
        raise SchemaError(schema.name, "the descriptor set is empty")
    return FileSet(files[-1], files)


def _descriptor(name: str, schema: Schema) -> FileDescriptorProto | None:
    """Returns the file if the schema is one of base64, None if it is text."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    if schema.descriptor_set is not None or not _BASE64.fullmatch(schema.text):
        return None
    found = FileDescriptorProto()
    try:
        found.ParseFromString(base64.b64decode(schema.text))
        check_strings(found)
    except (DecodeError, DatumError, ValueError):
        return None
    found.name = name
    return found


def _free_name(taken: Mapping[str, Any]) -> str:
    name = "schema.proto"
    while name in taken:
        name = f"_{name}"
    return name


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _compiled(
    schema: Schema, main: str, texts: Mapping[str, str], binaries: list[FileDescriptorProto]
) -> dict[str, FileDescriptorProto]:
    """Compiles texts; returns them and what they import, by name."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    encoded = {name: _checked_text(schema, name, text) for name, text in texts.items()}
    total = sum(map(len, encoded.values()))
    if total > MAX_TEXT_BYTES:
        why = f"it has {total:,} bytes of text, and more than {MAX_TEXT_BYTES:,} are not compiled"
        raise SchemaError(schema.name, why)
    for name, text in _implied(encoded).items():
        encoded.setdefault(name, text)
    given = FileDescriptorSet(file=binaries).SerializeToString(deterministic=True)
    key = sha256(repr((main, sorted(encoded.items()), given)).encode()).digest()
    with _lock:
        found = _kept.get(key)
    if found is None:
        found = _run(schema, main, encoded, given)
        with _lock:
            if len(_kept) >= _KEPT:
                del _kept[next(iter(_kept))]
            _kept[key] = found
    return {each.name: each for each in parse_files(schema, found)}


def _checked_text(schema: Schema, name: str, text: str) -> bytes:
    parts = name.encode("utf-8", "surrogatepass").split(b"/")
    if (
        any(part in (b"", b".", b"..") or len(part) > _MAX_PART_BYTES for part in parts)
        or sum(map(len, parts)) > _MAX_NAME_BYTES
        or not name.isprintable()
        or "\\" in name
    ):
        shown = name if len(name) <= _MAX_PART_BYTES else f"{name[:_MAX_PART_BYTES]}…"
        raise SchemaError(schema.name, f"protoc cannot import a file with the name {shown}")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise SchemaError(schema.name, f"{name} has half of a surrogate pair") from None


def _implied(texts: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns the files that the texts may mean although nobody gave them. None of them imports
    another."""
    found = {
        name: text.encode()
        for name, text in _CONFLUENT.items()
        if any(name.encode() in each for each in texts.values())
    }
    if any(_COMMON.encode() in each for each in texts.values()):
        import google.type

        for directory in google.type.__path__:
            for path in Path(directory).glob("*.proto"):
                found[_COMMON + path.name] = path.read_bytes()
    return found


def _run(schema: Schema, main: str, texts: Mapping[str, bytes], given: bytes) -> bytes:
    """Returns a FileDescriptorSet of `main` and all that it imports."""
    require_extra(schema, "grpc_tools")
    import grpc_tools

    home = Path(grpc_tools.__path__[0])
    limits = (str(each) for each in (_MEMORY, _SECONDS, _MAX_OUTPUT_BYTES))
    with tempfile.TemporaryDirectory(prefix="kafkafs-protoc-") as directory:
        top = Path(directory)
        (top / "in").mkdir()
        _write(schema, top / "in", texts)
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(home.parent), *limits]
        command += ["-I.", f"-I{home / '_proto'}", "--include_imports"]
        command += ["--descriptor_set_out=../out"]
        if given:
            (top / "given").write_bytes(given)
            command.append("--descriptor_set_in=../given")
        try:
            done = subprocess.run(
                [*command, main],
                cwd=top / "in",
                env={},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=2 * _SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SchemaError(schema.name, _too_much()) from None
        if done.returncode == 0:
            return (top / "out").read_bytes()
    raise _refused(schema, main, done.returncode, done.stderr.decode("utf-8", "replace"))


def _write(schema: Schema, directory: Path, texts: Mapping[str, bytes]) -> None:
    for name, text in texts.items():
        path = directory / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            why = f"{name}, to which it refers, is also the directory of another file"
            raise SchemaError(schema.name, why) from None


def _too_much() -> str:
    return f"protoc needs more than {_SECONDS} s or {_MEMORY >> 20:,} MiB for it"


def _refused(schema: Schema, main: str, code: int, output: str) -> SchemaError:
    """Returns what protoc's complaints mean."""
    missing = _MISSING.search(output)
    if missing:
        why = f"{missing[1]}, which it imports, is missing"
        return MissingReference(schema.name, why)
    lines = [
        each for each in output.splitlines() if _COMPLAINT.match(each) and ": warning: " not in each
    ]
    if code < 0 or not lines or "MemoryError" in output or "bad_alloc" in output:
        return SchemaError(schema.name, _too_much())
    why = "; ".join(line.removeprefix(f"{main}:") for line in lines)
    return SchemaError(schema.name, why if len(why) <= _MAX_WHY else f"{why[:_MAX_WHY]}…")
