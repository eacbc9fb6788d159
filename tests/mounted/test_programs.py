"""The table of programs in SEMANTICS.md: what each does with the files of a range, on a mount."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import answers
from tests.cli.terminal import Terminal
from tests.mounted.live import LiveLog
from tests.mounted.mounting import mounted
from tests.mounted.promises import DOCUMENT

FIRST, LAST = 100, 1899
_ENVIRONMENT = {"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8", "HOME": "/nowhere"}
#: Programs that output all of `values`; {tmp} is an empty directory.
WHOLE = {
    "cat": "cat values",
    "less": "less -f values",
    "cp": "cp values {tmp}/v; cat {tmp}/v",
    "cp -r": "cp -r . {tmp}/copy; cat {tmp}/copy/values",
    "rsync -a": "rsync -a ./ {tmp}/copy; cat {tmp}/copy/values",
    "tar": "tar -cf {tmp}/a.tar .; tar -xOf {tmp}/a.tar ./values",
    "zip -r": "zip -qr {tmp}/a.zip .; python3 -m zipfile -e {tmp}/a.zip {tmp}; cat {tmp}/values",
    "gzip": "gzip -c values | gunzip",
    "split": "split -b 1000 -a 4 values {tmp}/part.; cat {tmp}/part.*",
    "dd": "dd if=values bs=4096 status=none",
    "grep -r": "grep -rh --include=values '^' .",
    "rg": "rg --no-config -IN '^' values",
    "diff -r": "cp -r . {tmp}/copy; diff -r . {tmp}/copy; cat {tmp}/copy/values",
    "sqlite3 .import": (
        "sqlite3 :memory: 'create table t(v)' '.mode ascii' '.separator \"\\001\" \"\\n\"'"
        " '.import values t' 'select v from t order by rowid'"
    ),
}
#: Programs whose output depends on `values`.
DERIVED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "head": ("head -n 5 values", lambda data: b"".join(data.splitlines(True)[:5])),
    "tail -n": ("tail -n 5 values", lambda data: b"".join(data.splitlines(True)[-5:])),
    "wc": ("wc -c < values", lambda data: b"%d\n" % len(data)),
    "sort": ("LC_ALL=C sort values", lambda data: b"".join(sorted(data.splitlines(True)))),
    "md5sum": ("md5sum < values", lambda data: hashlib.md5(data).hexdigest().encode() + b"  -\n"),
}
#: Python that writes every value and a line break, from any of the files.
_WRITE = "import sys\ndef write(*data): sys.stdout.buffer.write(b''.join(data))\n"
_BYTES = "write(*((v or b'') + b'\\n' for v in {}))"
_TEXTS = "write(*((v or '').encode() + b'\\n' for v in {}))"
_SQL = "[row[0] for row in d.sql({}).fetchall()]"
LIBRARIES = {
    "mmap": (
        "import mmap\nf = open('values', 'rb')\n"
        "write(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:])"
    ),
    "shutil": "import shutil\nwrite(open(shutil.copy('values', TMP + '/v'), 'rb').read())",
    "pandas": "import pandas as p\n"
    + _TEXTS.format("p.read_json('records.jsonl', lines=True, dtype=False).value"),
    "pyarrow open_stream": "import pyarrow as p\n"
    + _BYTES.format("p.ipc.open_stream('records.arrow').read_all()['value'].to_pylist()"),
    "pyarrow memory_map": "import pyarrow as p\nm = p.memory_map('records.arrow')\n"
    + _BYTES.format("p.ipc.open_stream(m).read_all()['value'].to_pylist()"),
    "DuckDB read_json_auto": "import duckdb as d\n"
    + _TEXTS.format(
        _SQL.format('"select value from read_json_auto(\'records.jsonl\') order by \\"offset\\""')
    ),
    "DuckDB read_csv": "import duckdb as d\n"
    + _TEXTS.format(
        _SQL.format(
            "\"select v from read_csv('values', delim='\\x01', quote='', escape='', header=false,"
            " columns={'v': 'VARCHAR'})\""
        )
    ),
    "polars scan_ndjson": "import polars as p\n"
    + _TEXTS.format("p.scan_ndjson('records.jsonl').collect()['value']"),
}
#: The same for a range's `records.parquet`.
PARQUET = {
    "pyarrow dataset": "import pyarrow.dataset as d\n"
    + _BYTES.format("d.dataset('records.parquet').to_table()['value'].to_pylist()"),
    "DuckDB read_parquet": "import duckdb as d\n"
    + _BYTES.format(
        _SQL.format('"select value from read_parquet(\'records.parquet\') order by \\"offset\\""')
    ),
    "polars scan_parquet": "import polars as p\n"
    + _BYTES.format("p.scan_parquet('records.parquet').collect()['value']"),
}
#: Interactive programs.
SHOWN = ("tail -f", "vim", "nano")
RECURSIVE = ("cp -r", "rsync -a", "tar", "zip -r", "grep -r", "diff -r")


@pytest.fixture(scope="module")
def directory(
    corpus: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    with mounted([corpus("kafka43-clean")], tmp_path_factory.mktemp("programs")) as mount:
        yield mount.point / f"orders/0/range/{FIRST}-{LAST}"


@pytest.fixture(scope="module")
def values() -> bytes:
    """The expected contents of `values`, from what a broker's consumer was given."""
    records = answers.records("kafka43-clean", "orders", 0)
    inside = [record for record in records if FIRST <= record.offset <= LAST]
    return b"".join((record.value or b"") + b"\n" for record in inside)


def run(command: list[str], directory: Path) -> bytes:
    done = subprocess.run(command, cwd=directory, capture_output=True, check=False, timeout=200)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def test_the_table_names_these_programs() -> None:
    section = DOCUMENT.read_text(encoding="utf-8").partition("## 25 Programs")[2]
    named = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert named == [*WHOLE, *DERIVED, *LIBRARIES, *PARQUET, *SHOWN]


@pytest.mark.parametrize("program", WHOLE)
def test_all_bytes(program: str, directory: Path, values: bytes, tmp_path: Path) -> None:
    command = f"set -e; {WHOLE[program].replace('{tmp}', str(tmp_path))}"
    assert run(["bash", "-c", command], directory) == values


@pytest.mark.parametrize("program", DERIVED)
def test_what_follows_from_them(program: str, directory: Path, values: bytes) -> None:
    command, expected = DERIVED[program]
    assert run(["bash", "-c", command], directory) == expected(values)


@pytest.mark.parametrize("program", [*LIBRARIES, *PARQUET])
def test_libraries(program: str, directory: Path, values: bytes, tmp_path: Path) -> None:
    assert run([sys.executable, "-c", script(program, tmp_path)], directory) == values


def script(program: str, tmp: Path) -> str:
    return f"TMP = {str(tmp)!r}\n{_WRITE}{(LIBRARIES | PARQUET)[program]}"


def test_what_a_person_sees(directory: Path, values: bytes, tmp_path: Path) -> None:
    look(directory / "values", values, tmp_path)


def look(path: Path, values: bytes, tmp: Path) -> None:
    """Checks what `tail -f`, vim and nano show of `values`; the two editors write it elsewhere."""
    last = values.splitlines()[-1].decode()
    with Terminal(["tail", "-n", "2", "-f", str(path)], _ENVIRONMENT) as terminal:
        assert "truncated" not in terminal.wait_for(last)
    copy = tmp / "vim"
    save = ["-c", f"w! {copy}", "-c", "q!"]
    editor = shutil.which("vim") or "vim.tiny"
    command = [editor, "-N", "-u", "NONE", "-n", "-R", *save, str(path)]
    with Terminal(command, _ENVIRONMENT) as vim:
        assert vim.exit_code() == 0
    assert copy.read_bytes() == values
    copy = tmp / "nano"
    with Terminal(["nano", "--ignorercfiles", str(path)], _ENVIRONMENT) as nano:
        nano.wait_for("Exit")
        nano.type("\x0f")
        nano.wait_for("File Name to Write")
        nano.type("\x0b" + str(copy) + "\r")
        nano.wait_for("DIFFERENT NAME")
        nano.type("y")
        nano.wait_for("Wrote ")
        nano.type("\x18")
        assert nano.exit_code() == 0
    assert copy.read_bytes() == values


@pytest.mark.slow
def test_streams_and_small_documents(
    corpus: Callable[[str], Path], directory: Path, tmp_path: Path
) -> None:
    """Runs the same programs on the files of a partition and of a topic."""
    records = answers.records("kafka43-clean", "orders", 0)
    whole = b"".join((record.value or b"") + b"\n" for record in records)
    where = directory.parent.parent
    texts = {name: text for name, text in WHOLE.items() if name not in RECURSIVE}
    one_file = {
        "rsync": "rsync -a values {tmp}/v; cat {tmp}/v",
        "tar": "tar -cf {tmp}/a values; tar -xOf {tmp}/a",
        "zip": "zip -q {tmp}/a values; python3 -m zipfile -e {tmp}/a.zip {tmp}; cat {tmp}/values",
        "mmap": f"{sys.executable} -c \"import mmap, sys; f = open('values', 'rb');"
        ' sys.stdout.buffer.write(mmap.mmap(f.fileno(), 0, prot=1)[:])"',
    }
    contents = {where / "values": whole}
    for path in (where / "status.json", where / "why.json", where.parent / "config.properties"):
        contents[path] = b""
    for path, expected in contents.items():
        for number, (name, text) in enumerate((texts | one_file).items()):
            here = tmp_path / f"{path.name}-{number}"
            here.mkdir()
            command = text.replace("{tmp}", str(here)).replace("values", path.name)
            found = run(["bash", "-c", f"set -e; {command}"], path.parent)
            if expected:
                assert found == expected, name
            elif path.suffix == ".json":
                assert json.loads(found)["partition"] == 0
            else:
                assert b"=" in found
                assert found.endswith(b"\n")
    for program, (command, derive) in DERIVED.items():
        assert run(["bash", "-c", command], where) == derive(whole), program
    for program in LIBRARIES:
        assert run([sys.executable, "-c", script(program, tmp_path)], where) == whole, program
    look(where / "values", whole, tmp_path)


#: Files that change with every read.
_CHANGING = ("status.json", "why.json", "log", "metrics", "summary.json", "report.html")


@pytest.mark.slow
@pytest.mark.parametrize("top", ["t/0", ""], ids=["partition", "mount"])
def test_whole_trees(top: str, tmp_path: Path) -> None:
    """Every program copies all files, and finds a match in each of them."""
    live = LiveLog(tmp_path / "logs")
    with mounted([live.directory], tmp_path) as mount:
        where = mount.point / top
        expected = tree(where)
        partition = where / Path("t/0").relative_to(top) if top != "t/0" else where
        assert expected[str((partition / "values").relative_to(where))] == live.lines()
        assert all(size for name, size in map(size_of, expected.items()) if name.endswith("json"))
        copies = {
            "cp -r": "cp -r . {tmp}",
            "rsync -a": "rsync -a ./ {tmp}",
            "tar": "tar -cf {tmp}.tar .; tar -xf {tmp}.tar -C {tmp}",
            "zip -r": "zip -qr {tmp}.zip .; python3 -m zipfile -e {tmp}.zip {tmp}",
            "shutil": f'{sys.executable} -c "import shutil;'
            " shutil.copytree('.', '{tmp}', dirs_exist_ok=True)\"",
        }
        for number, (program, text) in enumerate(copies.items()):
            copy = tmp_path / f"copy{number}"
            copy.mkdir()
            run(["bash", "-c", f"set -e; {text.replace('{tmp}', str(copy))}"], where)
            found = tree(copy)
            assert set(found) == set(expected), program
            for name, data in found.items():
                if Path(name).name in _CHANGING:
                    assert data or not expected[name], (program, name)
                else:
                    assert data == expected[name], (program, name)
        left_out = [option for name in _CHANGING for option in ("-x", name)]
        run(["diff", "-r", *left_out, ".", str(tmp_path / "copy0")], where)
        names = {name for name, data in expected.items() if b"value 4" in data}
        for command in (["grep", "-rlaF", "value 4", "."], ["rg", *_RG, "-laF", "value 4", "."]):
            matching = run(command, where).decode().splitlines()
            found_names = {str(Path(name)) for name in matching}
            assert {n for n in found_names ^ names if Path(n).name not in _CHANGING} == set()


_RG = ("--no-config", "--hidden", "--no-ignore", "--follow")


def tree(top: Path) -> dict[str, bytes]:
    """Returns the bytes of all files under a directory, links followed, ignoring sizes."""
    found = {}
    for place, _, names in os.walk(top):
        for name in names:
            path = Path(place, name)
            with path.open("rb", buffering=0) as file:
                data = b"".join(iter(lambda: file.read(1 << 20), b""))
            found[str(path.relative_to(top))] = data
    return found


def size_of(item: tuple[str, bytes]) -> tuple[str, int]:
    return item[0], len(item[1])


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("damaged")
    live = LiveLog(place / "logs")
    live.damage(3)
    with mounted([live.directory], place) as mount:
        mount.expects_warnings = True
        yield mount.point / "t/0/range/0-5"


@pytest.mark.parametrize("program", [*WHOLE, *DERIVED, *LIBRARIES, *PARQUET])
def test_damage_is_an_error(program: str, damaged: Path, tmp_path: Path) -> None:
    if program in LIBRARIES | PARQUET:
        command = [sys.executable, "-c", script(program, tmp_path)]
    else:
        text = WHOLE.get(program) or DERIVED[program][0]
        command = ["bash", "-c", f"set -eo pipefail; {text.replace('{tmp}', str(tmp_path))}"]
    done = subprocess.run(command, cwd=damaged, capture_output=True, check=False, timeout=200)
    # less displays the error and exits with 0
    assert done.returncode != 0 or b"Input/output error" in done.stderr + done.stdout
