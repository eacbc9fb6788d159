"""Imports point one way: kafkafs above mount above storage, and within storage floor upon floor.

The tests read the source; they import nothing. Every import counts, also one inside a function or
under TYPE_CHECKING: a name that is needed only by a type is needed all the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: storage/ from the ground up: each floor may import from its own and those above it in this list.
FLOORS = (
    ("errors", "local_path", "nearest", "times", "clock", "settings", "config", "ahead", "again"),
    ("disk", "durable", "lock", "fair_lock", "interruption", "small_file"),
    ("format",),
    ("segment",),
    ("log",),
    ("cleaner",),
    ("log_dir", "choice", "cluster_metadata", "topic_settings", "engine", "verify", "why"),
    ("tasks", "held_directory", "deleted_topics", "writable_log_dir", "writable_log_dirs"),
    ("upkeep", "log_opening", "kept_settings", "topics", "undeleting", "purging"),
    ("transaction_log", "transactional", "line_appender"),
    ("segment_series", "placements", "staging", "placing"),
    ("writable_engine",),
    ("compaction", "expiring", "first_pass"),
)
FLOOR_OF = {name: number for number, names in enumerate(FLOORS) for name in names}

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
    """One imported module or name: where it stands, and what it is, by its installed name."""

    file: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.name}"

    def within(self, package: str) -> bool:
        return self.name == package or self.name.startswith(package + ".")


def imports(source: str, file: str) -> Iterator[Import]:
    """Every import of `source`, the text of `file` (its path from the top of the repository).

    `from a import b` counts as `a.b`, since `b` may be a module: what is inside a.b is inside a.
    """
    layer = file.split("/", maxsplit=1)[0]
    path = file if layer == "kafkafs" else f"kafkafs/{file}"
    package = path.split("/")[:-1]
    for node in ast.walk(ast.parse(source, file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            parts = base + (node.module.split(".") if node.module else [])
            for alias in node.names:
                yield Import(file, node.lineno, ".".join([*parts, alias.name]))


def sources(layer: str) -> dict[str, str]:
    """The files of a layer, by their path from the top; `kafkafs` without the layers linked in."""
    found = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / layer).rglob("*.py"))
    }
    linked = ("kafkafs/storage/", "kafkafs/mount/")
    return {file: text for file, text in found.items() if not file.startswith(linked)}


def upward(layer: str, files: dict[str, str]) -> list[str]:
    """Imports of `files` that their layer may not make."""
    return [
        str(found)
        for file, text in files.items()
        for found in imports(text, file)
        if any(map(found.within, FOREIGN[layer]))
        or (found.within("kafkafs") and not any(map(found.within, OWN[layer])))
    ]


def bare(files: dict[str, str]) -> list[str]:
    """Imports of a layer by a name that only works from the top of the repository."""
    return [
        str(found)
        for file, text in files.items()
        for found in imports(text, file)
        if found.within("storage") or found.within("mount")
    ]


def floor(file: str) -> int:
    """The floor of storage on which `file` stands."""
    return FLOOR_OF[file.split("/")[1].removesuffix(".py")]


def to_higher_floors(files: dict[str, str]) -> list[str]:
    """Imports of storage's `files` that point at a floor built upon their own."""
    found_ones = []
    for file, text in files.items():
        for found in imports(text, file):
            parts = found.name.split(".")
            below = parts[2] if found.within("kafkafs.storage") and len(parts) > 2 else ""
            if FLOOR_OF.get(below, 0) > floor(file):
                found_ones.append(str(found))
    return found_ones


def uses_of_files(source: str) -> list[str]:
    """The built-in `open` and names of `os` and its like that reach files, found in `source`."""
    harmless = {
        "os.fspath",
        "os.fsencode",
        "os.fsdecode",
        "os.environ",
        "os.stat_result",
        "os.PathLike",
        "os.sched_getaffinity",
    }
    found = [f"{i.line}: {i.name}" for i in imports(source, "storage/x.py") if _opens_files(i.name)]
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


def test_only_the_doors_to_spark_need_it() -> None:
    """And of the source what plans and reads needs none, so that it can be tried without. Jobs need
    it for the types of their arguments, and are imported by the verbs that start them."""
    doors = {
        f"kafkafs/spark/{name}.py" for name in ("__init__", "source", "stream_reader", "writer")
    }
    needing = {
        found.file
        for file, text in sources("kafkafs").items()
        if not file.startswith(("kafkafs/spark/jobs/", "kafkafs/cli/spark"))
        for found in imports(text, file)
        if found.within("pyspark")
        or (found.within("kafkafs.spark") and not file.startswith("kafkafs/spark/"))
    }
    assert needing == doors


def test_only_the_event_loop_needs_fuse() -> None:
    """So that the tree can be used without: by the commands, and by tests of its own."""
    upper = ("mount/serving/", "mount/mounting/")
    needing = [
        str(found)
        for file, text in sources("mount").items()
        if not file.startswith(upper)
        for found in imports(text, file)
        if any(map(found.within, ("trio", "pyfuse3")))
        or any(map(found.within, ("kafkafs.mount.serving", "kafkafs.mount.mounting")))
    ]
    assert needing == []


@pytest.mark.parametrize("layer", ["storage", "mount", "kafkafs", "tests", "examples"])
def test_layers_are_imported_by_their_installed_names(layer: str) -> None:
    assert bare(sources(layer)) == []


def test_every_module_of_storage_has_its_floor() -> None:
    here = {file.split("/")[1].removesuffix(".py") for file in sources("storage")}
    assert here - {"__init__"} <= FLOOR_OF.keys()


def test_no_floor_of_storage_imports_one_above_it() -> None:
    files = {file: text for file, text in sources("storage").items() if file.count("/") > 0}
    assert to_higher_floors({f: t for f, t in files.items() if f != "storage/__init__.py"}) == []


def test_formats_do_no_io() -> None:
    reaching = [
        str(found)
        for file, text in sources("storage").items()
        if file.startswith("storage/format/")
        for found in imports(text, file)
        if found.within("kafkafs.storage.disk") or found.within("kafkafs.storage.small_file")
    ]
    assert reaching == []


def test_only_the_disk_modules_reach_files() -> None:
    """The kernels' switch loads extension modules, which are not files of a log."""
    doors = {
        "storage/disk.py",
        "storage/durable.py",
        "storage/lock.py",
        "storage/format/kernels/__init__.py",
    }
    reaching = {file: uses_of_files(text) for file, text in sources("storage").items()}
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

    def test_an_import_from_a_higher_floor(self) -> None:
        text = (
            "from ..log.log import Log\nfrom .. import engine\nfrom ..errors import CorruptError\n"
        )
        assert to_higher_floors({"storage/segment/segment.py": text}) == [
            "storage/segment/segment.py:1: kafkafs.storage.log.log.Log",
            "storage/segment/segment.py:2: kafkafs.storage.engine",
        ]

    def test_a_file_opened_past_the_disk(self) -> None:
        text = "import os, pathlib\nopen('x')\nos.stat('x')\nos.fspath('x')\ndisk.open('x')\n"
        assert sorted(uses_of_files(text)) == ["1: pathlib", "2: open", "3: os.stat"]
