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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkafs.cli import share
from kafkafs.cli.installation import EXTRAS, module_of
from tests.unchanged import ROOT, Proof

KERNELS = "kafkafs/storage/format/kernels"
LAYERS = ("storage", "mount", "kafkafs")
#: The files that may import an extra's modules; everything else runs without it.
NEEDING = {
    "hdfs": ("storage/io/remote/hdfs.py",),
    "mount": ("mount/fuse/", "mount/session/session.py"),
    "remote": ("storage/io/remote/",),
    "report": ("mount/documents/report/page.py",),
    "restore": ("kafkafs/restore/",),
    "schemas": ("storage/schemas/protobuf/", "storage/schemas/json_schema/decoder.py"),
    "spark": ("kafkafs/spark/", "kafkafs/cli/verbs/spark"),
    "polars": ("kafkafs/polars.py",),
    "sql": ("kafkafs/duckdb.py", "kafkafs/sql/", "kafkafs/cli/query/"),
    "tier": ("storage/tier/aiven/encryption.py",),
}
#: What no file imports: fsspec and ratarmountcore load these by the kind of URL or archive.
PLUGINS = {"adlfs", "aiohttp", "gcsfs", "indexed-gzip", "indexed-zstd", "paramiko", "s3fs"}
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


def modules_of(extra: str) -> set[str]:
    """Returns the top-level modules of an extra's distributions."""
    return {module_of(each).split(".")[0] for each in EXTRAS[extra]}


def test_dependencies_are_what_the_code_imports() -> None:
    """Those of an extra are imported only by the files that need the extra."""
    optional = project()["optional-dependencies"]
    declared = {extra: {distribution(each) for each in optional[extra]} for extra in EXTRAS}
    assert declared == {extra: {*map(distribution, each)} for extra, each in EXTRAS.items()}
    declared[""] = {distribution(each) for each in project()["dependencies"]}
    owners = importlib.metadata.packages_distributions()
    used: defaultdict[str, set[str]] = defaultdict(set)
    used["remote"] |= set(map(distribution, PLUGINS))
    for file, module in foreign_imports():
        extra = next((extra for extra in EXTRAS if module in modules_of(extra)), "")
        found = {distribution(owner) for owner in owners.get(module, [module])}
        # Many distributions, also those that others need, put modules into the package `google`.
        used[extra] |= found & declared[extra] or found
        assert not extra or file.startswith(NEEDING[extra]), f"{file} needs {module}"
    assert used == declared


def test_all_but_the_layer_of_an_extra_is_imported_without_it() -> None:
    extras = [name for extra in EXTRAS for name in modules_of(extra)]
    needing = (
        "/restore/",
        "/spark/",
        "/sql/session.py",
        "/polars.py",
        "/cli/query/",
        "/cli/verbs/spark",
        "/storage/io/remote/hdfs.py",
        "/mount/fuse/",
        "/mount/session/session.py",
    )
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
    tree = source_tree(tmp_path_factory.mktemp("packaging"))
    target = tree.parent / "dist"
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir"]
    done = subprocess.run(
        [*command, target, tree],
        check=False,
        capture_output=True,
        text=True,
        # -O0 builds in a quarter of the time.
        env={**os.environ, "CFLAGS": "-O0 -g0", "KAFKAFS_KERNELS": "c"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def source_tree(directory: Path) -> Path:
    """Returns a copy of this tree, in `directory`, without what builds left in it."""
    leftovers = shutil.ignore_patterns(
        *(".*", "build", "dist", "data", "*.so", "*.egg-info", "__pycache__")
    )
    copied: Path = shutil.copytree(ROOT, directory / "tree", symlinks=True, ignore=leftovers)
    return copied


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
        assert {name.removeprefix("kafkafs/spark/discovery/") for name in sources()} <= names
        assert {
            "kafkafs/py.typed",
            "kafkafs/storage/FORMAT.md",
            "kafkafs/mount/SEMANTICS.md",
            *(f"kafkafs/mount/documents/report/page.{suffix}" for suffix in ("css", "html", "js")),
        } <= names
        shared = {name.partition(".data/data/share/")[2] for name in names} - {""}
        assert shared == set(share.files())
        others = {name.split("/")[0] for name in names if ".dist-info" not in name}
        assert {name for name in others if not name.endswith(".data")} == {
            "kafkafs",
            "pyspark_kafkafs",
        }

    def test_the_wheel_holds_each_kernel_compiled_beside_its_source(self, wheel: Path) -> None:
        names = zipfile.ZipFile(wheel).namelist()
        stems = [name.removesuffix(".py") for name in names if is_kernel(name)]
        assert stems
        for stem in stems:
            assert [name for name in names if name.startswith(f"{stem}.") and name.endswith(".so")]

    @pytest.mark.parametrize("form", ["c", "python"])
    def test_the_installed_package_reads_a_corpus(
        self, wheel: Path, corpus: Callable[[str], Path], tmp_path: Path, form: str
    ) -> None:
        """In both forms of the kernels, away from the source tree, without extras and compiler."""
        installed = Installed(wheel, tmp_path)
        done = installed.run("--version", form=form)
        assert f"kernels: {'compiled' if form == 'c' else 'uncompiled'}\n" in done.stdout
        assert "\nextra mount: pyfuse3 and trio not installed (" in done.stdout
        reads(installed, corpus("kafka43-clean"), form=form)


@pytest.mark.slow
def test_without_a_compiler_the_kernels_are_installed_uncompiled(
    corpus: Callable[[str], Path], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir"]
    built: dict[str, subprocess.CompletedProcess[str]] = {
        kernels: subprocess.run(
            [*command, tmp_path, source_tree(tmp_path / (kernels or "unset"))],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "CC": "/nonexistent/cc", "KAFKAFS_KERNELS": kernels},
        )
        for kernels in ("c", "")
    }
    assert built["c"].returncode != 0
    assert "but KAFKAFS_KERNELS=c requires compiled kernels" in built["c"].stderr
    assert built[""].returncode == 0
    assert built[""].stderr.count("the kernels are installed uncompiled, which is slow") > 0
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    installed = Installed(wheel, tmp_path / "installed")
    done = reads(installed, corpus("kafka43-clean"))
    assert re.fullmatch(r"kafkafs: the kernels of kafkafs are not compiled.*\n", done.stderr)


class Installed:
    """A wheel, unpacked beside nothing but the packages that it depends on."""

    def __init__(self, wheel: Path, target: Path) -> None:
        self._target = target
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
        subprocess.run([*install, "--target", target, wheel], check=True)

    def run(self, *words: object, form: str = "") -> subprocess.CompletedProcess[str]:
        """Runs `kafkafs` with KAFKAFS_KERNELS=form, no extra to import, and no program to run."""
        extras = [name for extra in EXTRAS for name in modules_of(extra)]
        program = (
            "import importlib.util, sys; find = importlib.util.find_spec\n"
            f"sys.modules.update(dict.fromkeys({extras}))\n"
            f"importlib.util.find_spec = lambda name: None if name in {extras} else find(name)\n"
            "import kafkafs; from kafkafs.cli.main import main\n"
            f"assert kafkafs.__file__.startswith({str(self._target)!r})\n"
            "main()"
        )
        return subprocess.run(
            [sys.executable, "-P", "-c", program, *map(str, words)],
            check=True,
            capture_output=True,
            text=True,
            cwd=self._target,
            env={"PYTHONPATH": str(self._target), "KAFKAFS_KERNELS": form, "PATH": "/nonexistent"},
        )


def reads(installed: Installed, corpus: Path, form: str = "") -> subprocess.CompletedProcess[str]:
    """Reads a record and verifies a log; returns the process that read the record."""
    done = installed.run("cat", corpus, "orders/0/offset/600", form=form)
    assert done.stdout.startswith('{"order":1780,')
    verified = installed.run("verify", corpus, "txn", form=form)
    assert verified.stdout.endswith("nothing is wrong\n")
    return done


def sources() -> set[str]:
    """Returns every module of the three layers, by its installed path."""
    found = {path.relative_to(ROOT) for layer in LAYERS for path in (ROOT / layer).rglob("*.py")}
    return {str(path if path.parts[0] == "kafkafs" else "kafkafs" / path) for path in found}


def is_kernel(name: str) -> bool:
    """Returns whether this file of a wheel is the source of a kernel; those with a leading
    underscore are pasted into others."""
    return name.startswith(KERNELS) and name.endswith(".py") and "/_" not in name
