"""The installed package is complete: all layers, each kernel in both forms, no extra dependency.

`.ci/release --check` repeats the tests of the wheel with every wheel of a release, each in a bare
Debian without compiler and headers.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkafs.cli import share
from kafkafs.cli.installation import EXTRAS
from tests.unchanged import ROOT, Proof

KERNELS = "kafkafs/storage/format/kernels"
LAYERS = ("storage", "mount", "kafkafs")
#: The files that may import an extra's modules; everything else runs without it.
NEEDING = {
    "mount": ("mount/fuse/", "mount/session/session.py"),
    "spark": ("kafkafs/spark/", "kafkafs/cli/verbs/spark"),
}
#: Prints the names of all modules that an installation without extras can import.
WITHOUT_EXTRAS = """
import importlib, pkgutil, sys
for name in {extras!r}:
    sys.modules[name] = None
import kafkafs
for found in pkgutil.walk_packages(kafkafs.__path__, "kafkafs."):
    file = found.name.replace(".", "/").removeprefix("kafkafs/")
    if not ("/" + file + ".py").startswith({needing!r}):
        importlib.import_module(found.name)
        print(found.name)
"""


def project() -> dict[str, Any]:
    """Returns the [project] table of pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as source:
        table: dict[str, Any] = tomllib.load(source)["project"]
    return table


def distribution(requirement: str) -> str:
    """Returns the normalized name in a requirement such as `pyarrow>=15`."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def foreign_imports() -> Iterator[tuple[str, str]]:
    """Yields (file, top-level module) for each import of a module that is neither ours nor
    Python's."""
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                    names = [node.module]
                for name in {name.split(".")[0] for name in names}:
                    if name not in sys.stdlib_module_names and name != "kafkafs":
                        yield str(path.relative_to(ROOT)), name


def test_dependencies_are_what_the_code_imports() -> None:
    """Those of an extra are imported only by the files that need the extra."""
    optional = project()["optional-dependencies"]
    declared = {extra: {distribution(each) for each in optional[extra]} for extra in EXTRAS}
    assert declared == {extra: set(modules) for extra, modules in EXTRAS.items()}
    declared[""] = {distribution(each) for each in project()["dependencies"]}
    owners = importlib.metadata.packages_distributions()
    used: defaultdict[str, set[str]] = defaultdict(set)
    for file, module in foreign_imports():
        extra = next((extra for extra, modules in EXTRAS.items() if module in modules), "")
        used[extra] |= {distribution(owner) for owner in owners.get(module, [module])}
        assert not extra or file.startswith(NEEDING[extra]), f"{file} needs {module}"
    assert used == declared


def test_all_but_the_layer_of_an_extra_is_imported_without_it() -> None:
    extras = [name for modules in EXTRAS.values() for name in modules]
    needing = ("/spark/", "/cli/verbs/spark", "/mount/fuse/", "/mount/session/session.py")
    program = WITHOUT_EXTRAS.format(extras=extras, needing=needing)
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT
    )
    names = done.stdout.split()
    assert {"kafkafs.cli.verbs.mount", "kafkafs.mount.tree", "kafkafs.storage.log_manager"} <= {
        *names
    }


def test_the_top_level_is_as_agreed() -> None:
    """Keeps `ls` readable for newcomers; dotfiles are free."""
    agreed = {"pyproject.toml", "setup.py", "kafkafs", "mount", "storage", "tests", "examples"}
    agreed |= {"README.md", "LICENSE", "CHANGELOG.md"}
    made_by_tools = {"build", "dist", "kafkafs.egg-info"}
    here = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert here - made_by_tools == agreed


def test_the_changelog_knows_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)
    assert versions[0] == "Unreleased" or versions[0] == project()["version"]


@pytest.fixture(scope="module")
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A directory with the sdist of this tree, and the wheel that was built from that sdist."""
    kernels = (ROOT / "storage").rglob("kernels/*.py")
    proof = Proof("wheel", [ROOT / "setup.py", ROOT / "pyproject.toml", *kernels], sources())
    proof.skip_if_known()
    failed = request.session.testsfailed
    yield build(tmp_path_factory)
    if request.session.testsfailed == failed:
        proof.note()


def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the sdist and the wheel; returns their directory."""
    tree = tmp_path_factory.mktemp("packaging") / "tree"
    leftovers = shutil.ignore_patterns(
        ".*", "build", "dist", "data", "*.so", "*.egg-info", "__pycache__"
    )
    shutil.copytree(ROOT, tree, symlinks=True, ignore=leftovers)
    target = tree.parent / "dist"
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir"]
    done = subprocess.run(
        [*command, target, tree],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "CFLAGS": "-O0 -g0"},  # builds in a quarter of the time
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The wheel."""
    return next(built.glob("*.whl"))


@pytest.mark.slow
@pytest.mark.timeout(900)
class TestBuilt:
    def test_the_sdist_holds_all_that_a_build_needs(self, built: Path) -> None:
        with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
            names = {name.partition("/")[2] for name in sdist.getnames()}
        assert {"pyproject.toml", "setup.py", "LICENSE", "README.md"} <= names
        assert sources() <= names
        assert not [name for name in names if name.endswith((".c", ".so"))]

    def test_the_wheel_holds_every_module_of_every_layer(self, wheel: Path) -> None:
        names = set(zipfile.ZipFile(wheel).namelist())
        assert sources() <= names
        assert {
            "kafkafs/py.typed",
            "kafkafs/storage/FORMAT.md",
            "kafkafs/mount/SEMANTICS.md",
        } <= names
        shared = {name.partition(".data/data/share/")[2] for name in names} - {""}
        assert shared == set(share.files())
        others = {name.split("/")[0] for name in names if ".dist-info" not in name}
        assert {name for name in others if not name.endswith(".data")} == {"kafkafs"}

    def test_the_wheel_holds_each_kernel_compiled_beside_its_source(self, wheel: Path) -> None:
        names = zipfile.ZipFile(wheel).namelist()
        stems = [name.removesuffix(".py") for name in names if is_kernel(name)]
        assert stems
        for stem in stems:
            assert [name for name in names if name.startswith(f"{stem}.") and name.endswith(".so")]

    @pytest.mark.parametrize("form", ["c", "python"])
    def test_the_installed_package_runs(self, wheel: Path, tmp_path: Path, form: str) -> None:
        """Runs both forms of the kernels, away from the source tree and its installation."""
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
        subprocess.run([*install, "--target", tmp_path, wheel], check=True)
        program = (
            "import kafkafs, kafkafs.mount, kafkafs.storage.format.kernels as k;"
            "print(kafkafs.__version__, k.records.__file__)"
        )
        done = subprocess.run(
            [sys.executable, "-P", "-c", program],
            check=True,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path), "KAFKAFS_KERNELS": form},
        )
        version, kernel = done.stdout.split()
        assert version == project()["version"]
        assert kernel.startswith(str(tmp_path))
        assert kernel.endswith({"c": ".so", "python": ".py"}[form])


def sources() -> set[str]:
    """Returns every module of the three layers, by its installed path."""
    found = {path.relative_to(ROOT) for layer in LAYERS for path in (ROOT / layer).rglob("*.py")}
    return {str(path if path.parts[0] == "kafkafs" else "kafkafs" / path) for path in found}


def is_kernel(name: str) -> bool:
    """Returns whether this file of a wheel is the source of a kernel; those with a leading
    underscore are pasted into others."""
    return name.startswith(KERNELS) and name.endswith(".py") and "/_" not in name
