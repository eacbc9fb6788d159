"""Every row of the measurements works, from an environment that is not activated: each commit tries
a third of them. A row that fails is reported and keeps no other from being measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench import __main__ as bench
from tests.bench import querying, streaming, writing
from tests.bench.plan import Plan
from tests.bench.race import Figure, MissingPeer, Outcome, Outcomes
from tests.crash.moments import some

ROOT = Path(__file__).parents[2]
#: The least with which each row still does its work.
TINY = {
    "repetitions": 1,
    "records": 10_000,
    "listed": 2000,
    "opened": 20,
    "partitions": 4,
    "segments": 3,
    "recovered": 2,
    "gibibytes": 2,
    "lookups": 20,
    "appended": 2000,
    "compacted": 60_000,
    "keys": 2000,
    "mapped": 10_000,
    "spread": 90_000,
    "planned": 20,
    "removed": 20,
    "commits": 2000,
    "small": 100,
}


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.mounted
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_every_third_row(tmp_path: Path) -> None:
    """As in a shell where no environment is activated."""
    numbers = some(list(bench.ROWS), every=3)
    binaries = str(Path(sys.executable).parent)
    path = [each for each in os.environ["PATH"].split(":") if each != binaries]
    environment = {**os.environ, "PATH": ":".join(path), "KAFKAFS_BENCH_CACHE": str(tmp_path)}
    for name in ("VIRTUAL_ENV", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment.pop(name, None)
    sizes = [word for name, size in TINY.items() for word in (f"--{name}", str(size))]
    rows_option = ["--rows", ",".join(map(str, numbers))]
    done = subprocess.run(
        ["tests/bench/run.sh", "--trial", "--json", *rows_option, *sizes],
        cwd=ROOT,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()][1:]
    assert [row for row in rows if "failed" in row] == [], done.stderr
    assert {row["row"] for row in rows} == set(numbers)
    assert done.returncode in (0, 1), done.stderr


def fails(plan: Plan) -> Outcomes:
    yield Outcome(1, "its first outcome", Figure(1, "s"))
    raise ValueError("No module named 'pyarrow'\nand more")


def works(plan: Plan) -> Outcomes:
    yield Outcome(2, "works", Figure(1, "s"), limit=Figure(2, "s"))


@pytest.mark.parametrize("form", ["--json", "--markdown", ""])
def test_a_row_that_fails_is_reported(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "ROWS", {1: [fails, works], 2: [works]})
    monkeypatch.setattr("tests.bench.machine.describe", dict)
    written = tmp_path / "table"
    monkeypatch.setattr(sys, "argv", ["bench", *filter(None, [form]), "--output", str(written)])
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "python3")
    assert bench.main() == 2
    table = capsys.readouterr().out
    assert written.read_text() == table
    at = [table.index(each) for each in ("its first outcome", "test_rows.fails", "works")]
    assert at == sorted(at)
    assert table.count("works") == 2
    assert "ValueError: No module named 'pyarrow'" in table
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize(
    "row", [streaming.values, streaming.json, writing.append_json, querying.against_kcat]
)
def test_a_peer_that_is_not_installed_is_named(
    row: Callable[[Plan], Outcomes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a log is generated or a broker started."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingPeer, match=r"kcat.* not installed: apt-get install kcat"):
        next(row(Plan()))


def test_each_row_is_written_as_soon_as_it_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def looks(plan: Plan) -> Outcomes:
        seen.append(capsys.readouterr().out)
        yield from works(plan)

    monkeypatch.setattr(bench, "ROWS", {1: [works, looks]})
    monkeypatch.setattr("tests.bench.machine.describe", dict)
    monkeypatch.setattr(sys, "argv", ["bench"])
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "python3")
    assert bench.main() == 0
    assert "works" in seen[0]
