"""Imports point one way: kafkafs above mount above storage, within each no circle of any kind.
The layers above storage enter it through one door.

The tests read the source; only that of the door imports what it names. Every import counts, also
one inside a function or under TYPE_CHECKING: a name that only a type needs is still needed.
"""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from kafkafs import storage

ROOT = Path(__file__).parent.parent

LAYERS = ("storage", "mount", "kafkafs")
#: The names that the layers above may import from kafkafs.storage.
DOOR = ROOT / "storage" / "__init__.pyi"
#: The most entries (modules and folders) of a product folder.
MOST_ENTRIES = 14
#: Folders that list like things, a file each, and so may have more.
LISTS = {
    "storage/format/kernels": "a kernel each",
    "storage/format/messages/schemas": "the schemas of a coordinator each",
    "mount/nodes": "a name in the tree each",
    "storage/operations": "what a verb does each",
    "kafkafs/cli/verbs": "a verb each",
    "kafkafs/spark/jobs": "a job each",
    "storage": "a subject each",
}

#: Of kafkafs itself a layer imports only these packages.
OWN = {
    "storage": ("kafkafs.storage",),
    "mount": ("kafkafs.mount", "kafkafs.storage"),
    "kafkafs": ("kafkafs",),
}
#: What a layer does without, so that it can be used without: no mount needs Spark, no engine trio.
FOREIGN = {
    "storage": ("trio", "pyfuse3", "pyspark", "click"),
    "mount": ("pyspark", "click"),
    "kafkafs": (),
}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module or name: where it stands, what it is, by its installed name, and the name
    that the file has for it."""

    file: str
    line: int
    name: str
    bound: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.name}"

    def within(self, package: str) -> bool:
        return self.name == package or self.name.startswith(package + ".")


@cache
def imports(source: str, file: str) -> tuple[Import, ...]:
    """Every import of `source`, the text of `file` (its path from the top of the repository).

    `from a import b` counts as `a.b`, since `b` may be a module: what is inside a.b is inside a.
    """
    return tuple(_imports(source, file))


def _imports(source: str, file: str) -> Iterator[Import]:
    layer = file.split("/", maxsplit=1)[0]
    path = file if layer == "kafkafs" else f"kafkafs/{file}"
    package = path.split("/")[:-1]
    for node in ast.walk(ast.parse(source, file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name, alias.asname or alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            parts = base + (node.module.split(".") if node.module else [])
            for alias in node.names:
                name = ".".join([*parts, alias.name])
                yield Import(file, node.lineno, name, alias.asname or alias.name)


@cache
def sources(layer: str) -> Mapping[str, str]:
    """The files of a layer, by their path from the top; `kafkafs` without the layers linked in."""
    found = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / layer).rglob("*.py"))
    }
    linked = ("kafkafs/storage/", "kafkafs/mount/")
    return {file: text for file, text in found.items() if not file.startswith(linked)}


def upward(layer: str, files: Mapping[str, str]) -> list[str]:
    """Imports of `files` that their layer may not make."""
    return [
        str(found)
        for file, text in files.items()
        for found in imports(text, file)
        if any(map(found.within, FOREIGN[layer]))
        or (found.within("kafkafs") and not any(map(found.within, OWN[layer])))
    ]


def bare(files: Mapping[str, str]) -> list[str]:
    """Imports of a layer by a name that only works from the top of the repository."""
    return [
        str(found)
        for file, text in files.items()
        for found in imports(text, file)
        if found.within("storage") or found.within("mount")
    ]


def door(stub: str) -> list[str]:
    """The names that a stub re-exports (`from .module import name as name`), in its order."""
    return [
        alias.name
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    ]


def past_the_door(files: Mapping[str, str], names: Collection[str]) -> list[str]:
    """Imports from storage that go past its door, which shows `names`."""
    allowed = {f"kafkafs.storage.{name}" for name in names}
    return [
        str(found)
        for file, text in files.items()
        for found in imports(text, file)
        if found.within("kafkafs.storage") and found.name not in allowed
    ]


def graph(files: Mapping[str, str]) -> dict[str, set[str]]:
    """Which of `files` each of them imports; a package counts as its `__init__.py`."""
    by_name = {module_name(file): file for file in files}
    found: dict[str, set[str]] = {file: set() for file in files}
    for file, text in files.items():
        for each in imports(text, file):
            name = each.name
            while name and name not in by_name:
                name = name.rpartition(".")[0]
            # `from a.b import c` reaches the module a.b.c, or the name c of the module a.b.
            if name and by_name[name] != file and not _is_package_on_the_way(name, each.name):
                found[file].add(by_name[name])
    return found


def _is_package_on_the_way(name: str, imported: str) -> bool:
    """Whether only a layer's own package was found for `imported`, not what is imported from it."""
    return name == "kafkafs" and imported != "kafkafs" and imported.split(".")[1] in LAYERS


def module_name(file: str) -> str:
    """The dotted name of a file's module; that of the package for an `__init__.py`."""
    path = file if file.startswith("kafkafs/") else f"kafkafs/{file}"
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components with more than one member (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(one: str) -> None:
        index[one] = low[one] = len(index)
        stack.append(one)
        for other in sorted(arrows.get(one, ())):
            if other not in index:
                visit(other)
                low[one] = min(low[one], low[other])
            elif other in stack:
                low[one] = min(low[one], index[other])
        if low[one] == index[one]:
            at = stack.index(one)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for one in sorted(arrows):
        if one not in index:
            visit(one)
    return found


def arrows_within(folder: str, arrows: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Arrows between the entries of a folder: its files, and its folders with all they hold."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for file, others in arrows.items():
        one = _entry(folder, file)
        for other in others:
            another = _entry(folder, other)
            if one and another and one != another:
                found[one].add(another)
    return found


def _entry(folder: str, file: str) -> str:
    """The entry of `folder` that holds `file`; "" for none, and for the folder's `__init__.py`,
    its door, which nothing inside goes through."""
    if not file.startswith(f"{folder}/"):
        return ""
    entry = file[len(folder) + 1 :].split("/")[0]
    return "" if entry == "__init__.py" else entry


def folders(files: Mapping[str, str]) -> list[str]:
    """All folders that hold `files`, at any depth."""
    return sorted({str(parent) for file in files for parent in Path(file).parents} - {"."})


def product() -> dict[str, str]:
    """The files of all layers."""
    return {file: text for layer in LAYERS for file, text in sources(layer).items()}


def uses_of_files(source: str, file: str = "storage/x.py") -> list[str]:
    """The built-in `open` and names of `os` and its like that reach files, found in `source`."""
    harmless = {
        "os.fspath",
        "os.fsencode",
        "os.fsdecode",
        "os.environ",
        "os.stat_result",
        "os.PathLike",
        "os.sched_getaffinity",
        "os.cpu_count",
    }
    found = [f"{i.line}: {i.name}" for i in imports(source, file) if _opens_files(i.name)]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if node.value.id == "os" and name not in harmless:
                found.append(f"{node.lineno}: {name}")
        elif isinstance(node, ast.Name) and node.id == "open":
            found.append(f"{node.lineno}: open")
    return found


def _opens_files(name: str) -> bool:
    return name.split(".")[0] in {"io", "shutil", "pathlib", "glob", "tempfile", "fcntl", "tarfile"}


@pytest.mark.parametrize("layer", sorted(OWN))
def test_no_layer_imports_one_above_it(layer: str) -> None:
    assert upward(layer, sources(layer)) == []


@pytest.mark.parametrize("layer", ["mount", "kafkafs"])
def test_storage_has_one_door(layer: str) -> None:
    assert past_the_door(sources(layer), door(DOOR.read_text(encoding="utf-8"))) == []


def test_every_name_at_the_door_is_there_documented_and_used() -> None:
    names = door(DOOR.read_text(encoding="utf-8"))
    assert len(set(names)) == len(names)
    assert sorted(names) == dir(storage)
    used = {
        found.name
        for layer in ("mount", "kafkafs")
        for file, text in sources(layer).items()
        for found in imports(text, file)
    }
    assert [name for name in names if f"kafkafs.storage.{name}" not in used] == []
    found = {name: getattr(storage, name) for name in names}
    # The tables that map errors to errnos and exit codes read better with the module's name.
    assert [name for name, each in found.items() if isinstance(each, ModuleType)] == ["errors"]
    documented = {n: e for n, e in found.items() if inspect.isclass(e) or inspect.isfunction(e)}
    assert [name for name, each in documented.items() if not inspect.getdoc(each)] == []


def test_only_the_doors_to_spark_need_it() -> None:
    """And of the source what plans and reads needs none, so that it can be tried without. Jobs need
    it for the types of their arguments, and are imported by the verbs that start them."""
    doors = {
        f"kafkafs/spark/{name}.py"
        for name in (
            "__init__",
            "source",
            "scanning",
            "read/range_reader",
            "read/stream_reader",
            "write/writer",
        )
    }
    needing = {
        found.file
        for file, text in sources("kafkafs").items()
        if not file.startswith(("kafkafs/spark/jobs/", "kafkafs/cli/verbs/spark"))
        for found in imports(text, file)
        if found.within("pyspark")
        or (found.within("kafkafs.spark") and not file.startswith("kafkafs/spark/"))
    }
    assert needing == doors


def test_only_the_event_loop_needs_fuse() -> None:
    """So that the tree can be used without: by the commands, and by tests of its own."""
    upper = ("mount/fuse/", "mount/session/")
    needing = [
        str(found)
        for file, text in sources("mount").items()
        if not file.startswith(upper)
        for found in imports(text, file)
        if any(map(found.within, ("trio", "pyfuse3")))
        or any(map(found.within, ("kafkafs.mount.fuse", "kafkafs.mount.session")))
    ]
    assert needing == []


@pytest.mark.parametrize("layer", ["storage", "mount", "kafkafs", "tests", "examples"])
def test_layers_are_imported_by_their_installed_names(layer: str) -> None:
    assert bare(sources(layer)) == []


def test_no_circle_of_files() -> None:
    assert circles(graph(product())) == []


def test_no_circle_of_folders() -> None:
    files = product()
    arrows = graph(files)
    found = {folder: circles(arrows_within(folder, arrows)) for folder in folders(files)}
    assert {folder: each for folder, each in found.items() if each} == {}


def test_a_folder_can_be_seen_at_a_glance() -> None:
    files = product()
    entries = {
        folder: {_entry(folder, file) for file in files} - {""}
        for folder in folders(files)
        if folder not in LISTS
    }
    assert {f: len(each) for f, each in entries.items() if len(each) > MOST_ENTRIES} == {}


def test_no_small_file_that_its_only_importer_could_hold() -> None:
    files = product()
    importers: defaultdict[str, set[str]] = defaultdict(set)
    stub = str(DOOR.relative_to(ROOT))
    for file, others in graph({**files, stub: DOOR.read_text(encoding="utf-8")}).items():
        for other in others:
            importers[other].add(file)
    small = [
        file
        for file, text in files.items()
        if 15 <= text.count("\n") <= 60
        and len(importers[file]) == 1
        and stub not in importers[file]
        and not file.endswith("__init__.py")
        and str(Path(file).parent) not in LISTS
    ]
    assert small == []


def test_one_public_class_name_means_one_thing() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file, text in product().items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(file)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_formats_do_no_io() -> None:
    reaching = [
        str(found)
        for file, text in sources("storage").items()
        if file.startswith("storage/format/")
        for found in imports(text, file)
        if found.within("kafkafs.storage.io.disk") or found.within("kafkafs.storage.io.small_file")
    ]
    assert reaching == []


def test_only_the_disk_modules_reach_files() -> None:
    """The kernels' switch loads extension modules, which are not files of a log; one kernel reads
    from a file that is open, as fast as the system can; and protoc reads
    and writes a temporary directory."""
    doors = {
        "storage/io/disk.py",
        "storage/io/openat.py",
        "storage/io/durable.py",
        "storage/io/lock.py",
        "storage/io/local_path.py",  # paths, but no files
        "storage/io/opening.py",
        "storage/io/remote/archives/archive.py",
        "storage/io/remote/archives/index.py",  # the cache
        "storage/io/remote/block_source.py",  # process ids
        "storage/io/remote/blocks.py",  # the cache
        "storage/io/remote/lock.py",  # process ids
        "storage/io/remote/requests.py",  # the texts of errors
        "storage/io/remote/settings.py",
        "storage/io/remote/store.py",
        "storage/format/kernels/__init__.py",
        "storage/format/kernels/header_reads.py",
        "storage/schemas/protobuf/compiler.py",
    }
    reaching = {file: uses_of_files(text, file) for file, text in sources("storage").items()}
    assert {file: uses for file, uses in reaching.items() if uses and file not in doors} == {}


class TestTheChecksThemselves:
    """What each check must find, in sources made up for it."""

    def test_an_import_upwards(self) -> None:
        text = "def f():\n    from ..mount import tree\n    import pyfuse3.x\n"
        assert upward("storage", {"storage/engine.py": text}) == [
            "storage/engine.py:2: kafkafs.mount.tree",
            "storage/engine.py:3: pyfuse3.x",
        ]

    def test_a_package_whose_name_only_begins_alike(self) -> None:
        assert (
            upward("mount", {"mount/tree.py": "import clicker\nfrom kafkafs import storage\n"})
            == []
        )
        assert upward("mount", {"mount/tree.py": "from kafkafs import storages\n"}) != []

    def test_a_bare_import(self) -> None:
        files = {"mount/tree.py": "from storage import log\nimport mount.tree\nfrom . import x\n"}
        assert bare(files) == ["mount/tree.py:1: storage.log", "mount/tree.py:2: mount.tree"]

    def test_an_import_past_the_door(self) -> None:
        text = (
            "from kafkafs.storage import Engine, Secret\n"
            "from kafkafs.storage.errors import X\n"
            "def f():\n    from kafkafs.storage.io.disk import DirFd\n"
        )
        assert past_the_door({"mount/tree.py": text}, ["Engine"]) == [
            "mount/tree.py:1: kafkafs.storage.Secret",
            "mount/tree.py:2: kafkafs.storage.errors.X",
            "mount/tree.py:4: kafkafs.storage.io.disk.DirFd",
        ]

    def test_a_circle_of_files(self) -> None:
        files = {
            "storage/a.py": "from .b import x\n",
            "storage/b.py": "def f():\n    from . import c\n",
            "storage/c.py": "if TYPE_CHECKING:\n    from .a import y\n",
            "storage/d.py": "from .a import x\n",
        }
        assert circles(graph(files)) == [["storage/a.py", "storage/b.py", "storage/c.py"]]

    def test_a_circle_of_folders_without_one_of_files(self) -> None:
        files = {
            "storage/x/a.py": "from ..y.b import n\n",
            "storage/y/b.py": "",
            "storage/y/c.py": "from ..x.d import m\n",
            "storage/x/d.py": "",
        }
        arrows = graph(files)
        assert circles(arrows) == []
        assert circles(arrows_within("storage", arrows)) == [["x", "y"]]

    def test_a_file_opened_past_the_disk(self) -> None:
        text = "import os, pathlib\nopen('x')\nos.stat('x')\nos.fspath('x')\ndisk.open('x')\n"
        assert sorted(uses_of_files(text)) == ["1: pathlib", "2: open", "3: os.stat"]
