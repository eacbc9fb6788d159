"""The table of programs in SEMANTICS.md: what each does with the files of a range, on a mount."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import answers
from tests.mounted.live import LiveLog
from tests.mounted.mounting import mounted
from tests.mounted.promises import DOCUMENT

FIRST, LAST = 100, 1899
#: Programs that give all of `values` on their output; {tmp} is an empty directory.
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
#: Programs whose output follows from `values`.
DERIVED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "head": ("head -n 5 values", lambda data: b"".join(data.splitlines(True)[:5])),
    "tail -n": ("tail -n 5 values", lambda data: b"".join(data.splitlines(True)[-5:])),
    "wc": ("wc -c < values", lambda data: b"%d\n" % len(data)),
    "sort": ("LC_ALL=C sort values", lambda data: b"".join(sorted(data.splitlines(True)))),
    "md5sum": ("md5sum < values", lambda data: hashlib.md5(data).hexdigest().encode() + b"  -\n"),
}
#: Python that prints the number of records, or of bytes in `values`.
COUNTED = {
    "mmap": (
        "import mmap; f = open('values', 'rb');"
        " print(len(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:]))"
    ),
    "shutil": "import shutil; print(len(open(shutil.copy('values', TMP + '/v'), 'rb').read()))",
    "pandas": "import pandas as p; print(len(p.read_json('records.jsonl', lines=True)))",
    "pyarrow open_stream": (
        "import pyarrow as p; print(p.ipc.open_stream('records.arrow').read_all().num_rows)"
    ),
    "pyarrow memory_map": (
        "import pyarrow as p;"
        " print(p.ipc.open_stream(p.memory_map('records.arrow')).read_all().num_rows)"
    ),
    "pyarrow dataset": (
        "import pyarrow.dataset as d; print(d.dataset('records.parquet').count_rows())"
    ),
    "DuckDB read_json_auto": (
        "import duckdb as d;"
        " print(d.sql(\"select count(*) from read_json_auto('records.jsonl')\").fetchall()[0][0])"
    ),
    "DuckDB read_parquet": (
        "import duckdb as d;"
        " print(d.sql(\"select count(*) from read_parquet('records.parquet')\").fetchall()[0][0])"
    ),
    "DuckDB read_csv": (
        "import duckdb as d; print(d.sql(\"select count(*) from read_csv('values', delim='\\x01',"
        " quote='', escape='', header=false, columns={'v': 'VARCHAR'})\").fetchall()[0][0])"
    ),
    "polars scan_ndjson": (
        "import polars as p; print(p.scan_ndjson('records.jsonl').select(p.len()).collect().item())"
    ),
    "polars scan_parquet": (
        "import polars as p;"
        " print(p.scan_parquet('records.parquet').select(p.len()).collect().item())"
    ),
}
OF_BYTES = ("mmap", "shutil")


@pytest.fixture(scope="module")
def directory(
    corpus: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    with mounted([corpus("kafka43-clean")], tmp_path_factory.mktemp("programs")) as mount:
        yield mount.point / f"orders/0/range/{FIRST}-{LAST}"


@pytest.fixture(scope="module")
def values() -> bytes:
    """What `values` must have, by what a broker's consumer was given."""
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
    assert named == [*WHOLE, *DERIVED, *COUNTED]


@pytest.mark.parametrize("program", WHOLE)
def test_all_bytes(program: str, directory: Path, values: bytes, tmp_path: Path) -> None:
    command = f"set -e; {WHOLE[program].replace('{tmp}', str(tmp_path))}"
    assert run(["bash", "-c", command], directory) == values


@pytest.mark.parametrize("program", DERIVED)
def test_what_follows_from_them(program: str, directory: Path, values: bytes) -> None:
    command, expected = DERIVED[program]
    assert run(["bash", "-c", command], directory) == expected(values)


@pytest.mark.parametrize("program", COUNTED)
def test_libraries(program: str, directory: Path, values: bytes, tmp_path: Path) -> None:
    script = f"TMP = {str(tmp_path)!r}\n" + COUNTED[program]
    expected = len(values) if program in OF_BYTES else values.count(b"\n")
    assert int(run([sys.executable, "-c", script], directory)) == expected


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("damaged")
    live = LiveLog(place / "logs")
    live.damage(3)
    with mounted([live.directory], place) as mount:
        mount.expects_warnings = True
        yield mount.point / "t/0/range/0-5"


@pytest.mark.parametrize("program", [*WHOLE, *DERIVED, *COUNTED])
def test_damage_is_an_error(program: str, damaged: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"TMP = {str(tmp_path)!r}\n{COUNTED.get(program, '')}"]
    if program not in COUNTED:
        text = WHOLE.get(program) or DERIVED[program][0]
        command = ["bash", "-c", f"set -eo pipefail; {text.replace('{tmp}', str(tmp_path))}"]
    done = subprocess.run(command, cwd=damaged, capture_output=True, check=False, timeout=200)
    # less shows the error as it shows a file, and leaves with 0
    assert done.returncode != 0 or b"Input/output error" in done.stderr + done.stdout
