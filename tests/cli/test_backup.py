"""Tests of `kafkafs backup` and of the verbs that take a backup for log directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.results import Kafkafs, lines_of, rows_of, stdout_of


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backups") / "backup"


@pytest.fixture
def made(kafkafs: Kafkafs, clean: Path, backup: Path) -> Path:
    """A backup of a broker's directory, made once."""
    if not backup.exists():
        stdout_of(kafkafs("backup", clean, backup))
    return backup


@pytest.mark.parametrize(
    "line",
    [
        "topic list {}",
        "ls {}",
        "cat {} crash-txn/0/records.jsonl",
        "groups {}",
        "cluster {}",
        "sql {} FROM",
        "diff {} SOURCE",
        "explain {} TOPIC/0/offset/0",
        "why {} TOPIC/0",
    ],
)
def test_verbs_read_a_backup_as_they_read_the_directory(
    kafkafs: Kafkafs, clean: Path, made: Path, line: str
) -> None:
    topic = lines_of(kafkafs("ls", clean))[-1]
    answers = []
    for path in (clean, made):
        words = [word.format(path) for word in line.split()]
        words = [word.replace("TOPIC", topic).replace("SOURCE", str(clean)) for word in words]
        if words[-1] == "FROM":
            words[-1] = (
                "select topic, partition, count(*) from partitions group by all order by all"
            )
        result = kafkafs(*words)
        answers.append((result.exit_code, result.stdout.replace(str(path), "")))
    is_same = answers[0] == answers[1]
    assert is_same or line.startswith("explain")  # which prints times and paths
    assert answers[0][0] == answers[1][0]


def test_the_life_of_a_backup(kafkafs: Kafkafs, clean: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    foretold = rows_of(kafkafs("backup", "--dry-run", "--json", clean, target))[-1]
    assert not target.exists()
    rows = rows_of(kafkafs("backup", "--json", "--bandwidth", "1GB/s", clean, target))
    point = rows[-1]
    assert (foretold["partitions"], foretold["bytes"]) == (point["partitions"], point["bytes"])
    assert {row["topic"] for row in rows if "topic" in row} == {
        row["topic"] for row in rows_of(kafkafs("topic", "list", "--json", clean))
    }
    again = stdout_of(kafkafs("backup", "create", "-h", clean, target))
    assert ", of which 0 are new" in again
    listed = rows_of(kafkafs("backup", "list", "--json", target))
    assert listed[0]["manifest"] == point["manifest"]
    assert [each["newBytes"] > 0 for each in listed] == [True, False]
    assert lines_of(kafkafs("backup", "list", target))[1].startswith(point["time"])
    verified = lines_of(kafkafs("backup", "verify", target))
    assert [line.split()[-1] for line in verified] == ["RESULT", "complete", "complete"]
    assert len(lines_of(kafkafs("backup", "verify", "--at", point["time"], target))) == 2
    told = rows_of(kafkafs("backup", "prune", "--keep-last", "1", "-n", "--json", target))
    assert [row.get("kept") for row in told] == [False, True, None]
    pruned = lines_of(kafkafs("backup", "prune", "--keep-daily", "7", target))
    assert pruned[-1] == "0 objects of 0 bytes were removed"
    assert len(rows_of(kafkafs("backup", "list", "--json", target))) == 1


def test_a_backup_at_a_url(kafkafs: Kafkafs, clean: Path, tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}/backup"
    foretold = rows_of(kafkafs("backup", "--dry-run", "--json", clean, url))[-1]
    point = rows_of(kafkafs("backup", "--json", clean, url))[-1]
    assert (foretold["bytes"], foretold["manifest"]) == (point["bytes"], f"{url}/points")
    assert point["manifest"].startswith(f"{url}/points/")
    assert rows_of(kafkafs("backup", "list", "--json", url))[0]["manifest"] == point["manifest"]
    assert lines_of(kafkafs("backup", "verify", url))[-1].endswith("complete")
    line = f"{lines_of(kafkafs('ls', clean))[-1]}/0/records.jsonl"
    for path in (url, point["manifest"]):
        assert stdout_of(kafkafs("cat", path, line)) == stdout_of(kafkafs("cat", clean, line))
        assert kafkafs("diff", path, clean).exit_code == 0
    counted = "select topic, count(*) from partitions group by all order by all"
    assert stdout_of(kafkafs("sql", url, counted)) == stdout_of(kafkafs("sql", clean, counted))
    stdout_of(kafkafs("revive", url, "-o", tmp_path / "new"))
    revived = tmp_path / "new" / "data"
    assert stdout_of(kafkafs("cat", revived, line)) == stdout_of(kafkafs("cat", clean, line))
    assert lines_of(kafkafs("backup", "prune", "--keep-last", "1", url))[-1].startswith("0 objects")
    assert "cannot be written to" in kafkafs("backup", clean, "https://127.0.0.1:1/x").stderr


def test_damage_is_reported(kafkafs: Kafkafs, clean: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    stdout_of(kafkafs("backup", clean, target))
    victim = max((target / "objects").rglob("*"), key=lambda path: path.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    result = kafkafs("backup", "verify", target)
    assert (result.exit_code, str(victim) in result.stderr) == (1, True)
    assert "1 objects are wrong" in result.stdout
    victim.unlink()
    stdout_of(kafkafs("backup", clean, target))
    assert kafkafs("backup", "verify", "--at", "2100-01-01", target).exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["backup", "DIR"], "Missing argument 'DEST'"),
        (["backup", "DIR", "DIR"], "would be in the log directory"),
        (["backup", "--bandwidth", "fast", "DIR", "OUT"], "not a number of bytes per second"),
        (["backup", "--at", "2030-01-01", "DIR", "OUT"], "--at cannot be used"),
        (["backup", "DIR", "OUT", "nowhere"], "no topic nowhere"),
        (["backup", "prune", "OUT"], "say which points to keep"),
        (["backup", "list", "DIR"], "not a backup: it has no kafkafs-backup.json"),
        (["backup", "verify", "OUT"], "not a backup"),
    ],
)
def test_wrong_usage(
    kafkafs: Kafkafs, clean: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    places = {"DIR": str(clean), "OUT": str(tmp_path / "out")}
    result = kafkafs(*(places.get(word, word) for word in words))
    assert result.exit_code in (1, 2)
    assert message.lower() in result.stderr.lower()
    assert "internal error" not in result.stderr
    assert not (tmp_path / "out").exists()


def test_writers_refuse_a_backup(kafkafs: Kafkafs, made: Path) -> None:
    topic = lines_of(kafkafs("ls", made))[-1]
    for words in (["append", made, f"{topic}/0"], ["topic", "create", made, "x"], ["expire", made]):
        error = kafkafs(*words).stderr
        assert "internal error" not in error
        assert "backup" in error


def test_a_manifest_says_everything(made: Path) -> None:
    (manifest,) = (made / "points").iterdir()
    found = json.loads(manifest.read_bytes())
    assert {each["name"] for each in found["objects"]} == {
        str(path.relative_to(made / "objects"))
        for path in (made / "objects").rglob("*")
        if path.is_file()
    }
