"""The pages of the repository: their form and links, their examples, what they list."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, Self

import click
import pytest

import kafkafs
from kafkafs.cli.main import VERBS, cli
from kafkafs.mount.nodes.append import AppendFile
from kafkafs.mount.options import MountOptions, parse_options
from kafkafs.mount.tree import Tree
from kafkafs.mount.writes.changes import Changes
from kafkafs.storage.config.kafka import config_texts, reader_config, run_configs
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests import registry_records, warm_python
from tests.answers import DATA
from tests.readme import (
    API_PAGE,
    CLI_PAGE,
    MOUNT_PAGE,
    README,
    ROOT,
    STORAGE_PAGE,
    blocks,
    commands,
    headings,
    pages,
    placed,
    section,
)
from tests.test_layers import graph, sources
from tests.test_packaging import KERNELS as INSTALLED_KERNELS
from tests.test_packaging import distribution, project

README_TEXT = README.read_text()
RECIPES_TEXT = "\n".join(
    script
    for title in ("Recipes", "A cluster that is gone")
    for script in blocks(section(README_TEXT, title), "sh")
)
RECIPES = dict(re.findall(r"^# (.+)\n((?:[^#\n].*\n)+)", RECIPES_TEXT, re.MULTILINE))
#: Of each recipe, by the beginning of its question: the exit codes, and a pattern of the output.
ANSWERS: dict[str, tuple[list[int], str]] = {
    "Find a message by its key": ([0], r'^\{"order":19840,.*"total":510.75\}$'),
    "All messages of a key": (
        [0, 0],
        r'^\{"key":"customer-519",.*"offset":27,.*\n\{.*"offset":245,(.|\n)*\.log +\d+ .*rewritten',
    ),
    "What was there at a time": ([0, 0], r'^\{"order":5418,(.|\n)* 0 +0 +2228 +2228 +3 '),
    "The records between two times": ([0], r" 2671\n.* 2672\n"),
    "How far had each group read": (
        [0, 0],
        r'billing-manual +Classic +Empty +orders +0 +10 +0 +6674 +6664 (.|\n)*"offset":10,',
    ),
    "Who created or deleted that topic": (
        [0, 0],
        r"topic gone created(.|\n)*topic gone deleted, with 1 partition\n(.|\n)*orders +2 ",
    ),
    # No cluster runs there: tests/broker/test_restore.py has one.
    "Start a new Kafka": (
        [0, 1, 0],
        r"for Kafka 4.3: 22 topics, 28 partitions\nStart it with:\n(.|\n)* 4.3: 16 topics, ",
    ),
    "Everything on one page": ([0], r"No damage was found"),
    "What would retention delete": ([0], r"orders +0 +0 +149315 .* retention.ms\n"),
    "Copy a topic": ([0, 0, 1], r"orders/2: 6653 records, offsets 0 to 6652\ncluster id: "),
    "Values in Avro, Protobuf or JSON Schema": (
        [0, 0, 0],
        r'"customer":"velvet",(.|\n)*Name: decoded, Length: 125(.|\n)*"maple",7\n"kelp",6\n',
    ),
    "Export everything to Parquet": ([0], r"^$"),
    "The text of schemas": ([0], r'^\{"type":"record","name":"Shorts_hard",'),
    "Open in pandas, DuckDB, Polars": ([0, 0, 0], r"\[100 rows x 8 columns\](.|\n)*20000(.|\n)*"),
    "A segment is broken": ([1, 1], r"0+2648.log: position 10401: batch 2873-2880: crc is"),
    "Mount an archive; query a bucket": (
        [0, 0, 0],
        r"\norders\n(.|\n)*\n1,6673\n2,6653\nfirst\nlast\n0\n1\n",
    ),
    "Back up a running broker": ([0], r"\.json\n(.|\n)*billing-manual "),
    "In a container": ([0], r""),
    "As another user": ([0, 0], r'^\{"order":'),
}
#: The log directories of the pages.
SOURCES = {
    "data": "kafka43-clean",
    "damaged": "kafka43-torn",
    "registry": "schemas43",
    "tiered": "tier43",
}
KERNELS = INSTALLED_KERNELS.removeprefix("kafkafs/")
POSITION = re.compile(r"`([\w/]+\.py)`, `([\w.]+)`")


# -- the form of the pages ------------------------------------------------------------------------


def test_the_readme_can_be_read_in_five_minutes() -> None:
    assert len(README_TEXT.splitlines()) <= 250


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
class TestPage:
    def test_no_line_is_long(self, page: Path) -> None:
        assert [line for line in page.read_text().splitlines() if len(line) > 120] == []

    def test_links_lead_somewhere(self, page: Path) -> None:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if link.startswith("https://"):
                continue
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), link
            if anchor:
                assert anchor in map(as_anchor, headings(target.read_text())), link

    def test_files_exist(self, page: Path) -> None:
        """Paths are relative to the top of the repository, or to the page."""
        for name in re.findall(r"`([\w/]+/[\w/]+\.(?:py|sh|md))`", page.read_text()):
            assert (ROOT / name).is_file() or (page.parent / name).is_file(), name

    def test_functions_exist(self, page: Path) -> None:
        for file, name in POSITION.findall(page.read_text()):
            path = ROOT / file if (ROOT / file).is_file() else page.parent / file
            assert defines(path, name.split(".")), f"{file} has no {name}"


def as_anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-")


def defines(path: Path, names: Sequence[str]) -> bool:
    """Whether the module has this class, function, or method of a class."""
    scope: ast.AST = ast.parse(path.read_text())
    for name in names:
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = [n for n in ast.iter_child_nodes(scope) if isinstance(n, kinds) and n.name == name]
        if not found:
            return False
        scope = found[0]
    return True


def test_the_page_about_threads_names_classes() -> None:
    text = (ROOT / "mount" / "CONCURRENCY.md").read_text()
    code = "\n".join(code for layer in ("mount", "storage") for code in sources(layer).values())
    named = re.findall(r"`([A-Z]\w+)(?:\.(\w+))?`", text)
    assert len(named) > 20
    for name, member in named:
        assert name == "UNKNOWN_SIZE" or re.search(rf"^class {name}\b", code, re.MULTILINE), name
        assert re.search(rf"\b{member}\b", code), f"{name}.{member}"


class Calls:
    """Records which functions of the product this thread calls in the block, in the order of their
    first calls. Compiled functions are not seen."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self.found: dict[tuple[str, str], None] = {}

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_filename not in self._files:
                path = Path(code.co_filename).resolve()
                inside = path.is_relative_to(ROOT)
                self._files[code.co_filename] = str(path.relative_to(ROOT)) if inside else ""
            self.found.setdefault((self._files[code.co_filename], code.co_qualname))


def walk(title: str) -> list[tuple[str, str]]:
    """The functions of a walk, in order, that run in this thread and are not compiled."""
    text = re.sub(r"\s+", " ", section(STORAGE_PAGE.read_text(), title).partition("And back")[0])
    found = POSITION.findall(text)
    assert len(found) > 8
    return [each for each in found if not each[0].startswith(("mount/fuse/", KERNELS))]


def test_one_read_calls_these_functions(
    corpus: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(Engine(str(corpus("kafka43-clean"))))
    tree.resolve("orders/0/offset/599")
    inode = tree.resolve("orders/0/offset").inode
    monkeypatch.setattr("kafkafs.mount.partition.monotonic", lambda: time.monotonic() + 60)
    expected = walk("One read")
    with Calls() as calls:
        directory = tree.directory(inode)
        assert directory is not None
        size = directory.child("600").attributes().size
    assert size == 110
    assert [each for each in calls.found if each in expected] == expected


def test_one_append_calls_these_functions(tmp_path: Path) -> None:
    options, expected = MountOptions(writable=True), walk("One append")
    with LogManager(str(tmp_path)) as engine:
        engine.create_topic("orders", 1)
        node = Tree(engine, options, changes=Changes(engine, options)).resolve("orders/0/append")
        assert isinstance(node, AppendFile)
        with Calls() as calls:
            handle = node.open_writing(os.O_WRONLY)
            handle.write(0, b"line\n")
        handle.close()
        assert engine.log("orders", 0).view().end_offset == 1
    assert [each for each in calls.found if each in expected] == expected


def test_the_folders_of_storage_import_downwards() -> None:
    """As the page says: each folder only from those below it; all of them are listed."""
    listed = re.findall(r"^- `([\w/.]+)`", section(STORAGE_PAGE.read_text(), "Folders"), re.M)
    folders = reversed([name.removesuffix("/") for name in listed])
    order = ["clock.py", "wording.py", "errors.py", *folders]

    def level(file: str) -> int:
        return max(n for n, name in enumerate(order) if file.startswith(f"storage/{name}"))

    arrows = graph(sources("storage"))
    arrows.pop("storage/__init__.py")
    upward = [(a, b) for a, found in arrows.items() for b in found if level(a) < level(b)]
    assert upward == []


# -- what the pages list --------------------------------------------------------------------------


def test_the_readme_lists_every_verb() -> None:
    rows = re.findall(r"^\| (`.+?`) \|", section(README_TEXT, "Verbs"), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(VERBS)


def test_the_verbs_that_the_help_lists_are_these() -> None:
    assert cli.list_commands(click.Context(cli)) == list(VERBS)


def test_options_exist() -> None:
    text = MOUNT_PAGE.read_text()
    given = re.findall(r"`-o ([\w=,]+)`|fuse\.kafkafs  (\S+)", text)
    assert len(given) > 6
    for option in (one or other for one, other in given):
        for word, value in (("LEVEL", "read_committed"), ("FILE", "/tmp/log"), ("TIME", "0")):
            option = option.replace(word, value)
        parse_options(option)


def test_the_configs_of_the_reader_have_these_defaults() -> None:
    listed = re.findall(r"`(kafkafs\.[\w.]+)` \(`?(\d+|_\w+|false|exact)`?\)", CLI_PAGE.read_text())
    assert dict(listed) == config_texts(reader_config(run_configs(())))


def test_the_dependencies_are_those_of_the_package() -> None:
    rows = re.findall(r"^- (`.+?):", section(README_TEXT, "Dependencies"), re.MULTILINE)
    rows += re.findall(r"\. (`\S+`): ", section(README_TEXT, "Dependencies"))
    listed = {distribution(name) for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    extras = project()["optional-dependencies"]
    users = ("mount", "polars", "remote", "report", "restore", "schemas", "spark", "sql", "tier")
    declared = project()["dependencies"] + [each for name in users for each in extras[name]]
    assert listed == {distribution(each) for each in declared}


def test_the_packages_to_install_are_those_of_the_setup() -> None:
    [names] = re.findall(r"apt install (.+)", section(README_TEXT, "Installation"))
    setup = (ROOT / "tests" / "setup.sh").read_text()
    assert all(re.search(rf"echo .*\b{re.escape(name)}\b", setup) for name in names.split())


# -- examples -------------------------------------------------------------------------------------


@contextmanager
def workplace(corpus: Callable[[str], Path]) -> Iterator[Path]:
    """A directory that every user can enter, with the directories and mount points of the pages.
    The data are copies."""
    with tempfile.TemporaryDirectory(prefix="kafkafs-pages-") as directory:
        root = Path(directory)
        root.chmod(0o755)
        for name, source in SOURCES.items():
            copied = [str(corpus(source)), str(root / name)]
            subprocess.run(["cp", "-a", "--sparse=always", *copied], check=True)
        shutil.copy(DATA / "corpora" / "kafka39.tar.gz", root / "archive.tar.gz")
        for mount in ("kafka", "all", "archive", "check", "log"):
            (root / "mnt" / mount).mkdir(parents=True)
        try:
            yield root
        finally:
            for point in filter(os.path.ismount, (root / "mnt").iterdir()):
                run(f"kafkafs umount {point}")


@pytest.fixture
def place(corpus: Callable[[str], Path]) -> Iterator[Path]:
    with workplace(corpus) as root:
        yield root


@pytest.fixture(scope="module")
def mounted(corpus: Callable[[str], Path]) -> Iterator[Path]:
    """A work place whose /data is mounted on /mnt/kafka."""
    with workplace(corpus) as root:
        done = run(f"kafkafs mount {root}/data {root}/mnt/kafka")
        assert (done.returncode, done.stderr) == (0, "")
        yield root


def run(script: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in bash; it fails with its first command that fails. Another user runs the
    installed kafkafs, which comes second on the PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    options = ["-e", "-o", "pipefail", "-c"]
    return warm_python.run_script([*options, script], os.environ | {"PATH": path})


def answer(question: str) -> tuple[list[int], str]:
    [found] = [answer for start, answer in ANSWERS.items() if question.startswith(start)]
    return found


def test_every_recipe_has_an_answer() -> None:
    assert len(RECIPES) == len(ANSWERS)
    assert RECIPES_TEXT.count("\n# ") == len(RECIPES) - 1


@contextmanager
def bucket(data: Path) -> Iterator[None]:
    """An S3 server with a log directory at `s3://bucket/logs`; the environment names the server."""
    from tests import s3

    with s3.serving() as server:
        server.upload(data, "logs")
        yield


@pytest.mark.mounted
@pytest.mark.parametrize("question", RECIPES)
def test_recipe(question: str, mounted: Path) -> None:
    codes, pattern = answer(question)
    (mounted / "table").mkdir(exist_ok=True)
    with bucket(mounted / "data") if "s3://bucket" in RECIPES[question] else nullcontext():
        done = [run(command) for command in commands(placed(RECIPES[question], mounted))]
    assert [each.returncode for each in done] == codes, [each.stderr for each in done]
    printed = "".join(each.stdout for each in done)
    assert re.search(pattern, printed, re.MULTILINE), printed
    if question.startswith("Export"):
        exported = (mounted / "table" / "parquet").rglob("*.parquet")
        assert sum(path.stat().st_size for path in exported) > 1_000_000
    if question.startswith("Copy"):
        with kafkafs.open(str(mounted / "copy")) as d:
            assert d.topics == {"orders": [0, 1, 2]}


def test_the_container_needs_what_an_error_says() -> None:
    needed = (ROOT / "mount" / "session" / "fuse_obstacle.py").read_text()
    [question] = [question for question in RECIPES if question.startswith("In a container")]
    [flags] = re.findall(r"started with (.+?)\)", question)
    assert flags in needed


@pytest.mark.mounted
def test_the_first_steps_run(place: Path) -> None:
    [script] = blocks(section(README_TEXT, "Your own data"), "sh")
    done = run(placed(script, place))
    assert (done.returncode, done.stderr) == (0, "")
    assert "\norders\n" in done.stdout
    assert '\n{"order":1780,' in done.stdout
    assert not os.path.ismount(place / "mnt" / "kafka")


@pytest.mark.mounted
def test_the_example_of_writing_from_a_shell_runs(place: Path) -> None:
    [script] = blocks(section(README_TEXT, "Python, shell and Spark"), "sh")
    done = run(placed(script, place))
    assert (done.returncode, done.stderr) == (0, "")
    assert "orders/0: 2 records, offsets 0 to 1\n" in done.stdout
    assert done.stdout.endswith("2 partitions: nothing is wrong\n")
    with kafkafs.open(str(place / "log")) as d:
        assert [record.value for record in d["orders", 0].records()] == [b"pie", b"coffee"]


def test_the_python_example_of_the_readme_runs(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scope: dict[str, Any] = {}
    exec(placed(blocks(README_TEXT, "python")[0], place), scope)
    assert capsys.readouterr().out.startswith('0 6674 b\'{"order":1780,')
    assert scope["table"].num_rows == 6674 - 600
    with kafkafs.open(str(place / "new")) as d:
        assert d["orders", 0].record(0).value == b"12.50"


def test_the_python_examples_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reading, _, earlier, threads, sql, writing = blocks(API_PAGE.read_text(), "python")
    scope: dict[str, Any] = {}
    exec(placed(reading, place), scope)
    printed = capsys.readouterr().out.splitlines()
    assert "'orders': [0, 1, 2]" in printed[0]
    assert printed[1] == "0 6674 6674"
    assert printed[2].startswith('b\'{"order":1780,')
    table = scope["table"]
    assert table.column_names == ["offset", "key"]
    assert table.num_rows == 6674 - 600
    assert any(line.startswith("billing-manual Empty [('orders', 0, 10, 6664,") for line in printed)
    exec(placed(earlier, place), scope)
    assert capsys.readouterr().out == "2769 None\n"
    exec(placed(threads, place), scope)
    assert int(capsys.readouterr().out) > 2_000_000
    exec(placed(sql, place), scope)
    assert capsys.readouterr().out == "[(0, 6674), (1, 6673), (2, 6653)]\n"
    with kafkafs.open(str(place / "new"), writable=True) as d:
        d.create_topic("orders", 2)
    exec(placed(writing, place), scope)
    assert scope["offsets"] == range(1)
    with kafkafs.open(str(place / "new")) as d:
        assert [d["orders", 0].end_offset, d["payments", 1].end_offset] > [0, 0]
        assert d["payments", 1].record(0).value == b"12.50"


def test_the_python_example_of_decoding_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = [{"name": "customer", "type": "string"}, {"name": "total", "type": "double"}]
    order = json.dumps({"type": "record", "name": "Order", "fields": fields})
    (tmp_path / "order.avsc").write_text(order)
    with kafkafs.open(tmp_path / "data", writable=True) as d:
        for topic in ("_schemas", "orders"):
            d.create_topic(topic)
        version = registry_records.schema("orders-value", 1, 7, order)
        d["_schemas", 0].append([kafkafs.ProducerRecord(version.value, key=version.key)])
        d["orders", 0].append([b"\0\0\0\0\x07\x06amy" + bytes(8), b"text"])
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(placed(blocks(API_PAGE.read_text(), "python")[1], tmp_path), scope)
    assert scope["frame"].columns == ["customer", "total"]
    assert scope["frame"]["customer"].to_list() == ["amy", None]
    assert "its bytes name no schema" in capsys.readouterr().out


def test_the_examples_of_the_verbs_run(place: Path) -> None:
    [script] = blocks(CLI_PAGE.read_text(), "sh")
    done = run(placed(script, place))
    assert (done.returncode, done.stderr) == (0, "")
    assert "orders/1: 3 records, offsets 0 to 2\n" in done.stdout
    assert done.stdout.endswith("2 partitions: nothing is wrong\n")
    shutil.rmtree(place / "new")
