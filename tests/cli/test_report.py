"""Tests of `kafkafs report`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.results import Corpus, Kafkafs
from tests.conftest import differences, fingerprint


def test_the_page_is_written_and_its_summary_printed(
    kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path
) -> None:
    data, page = corpus("kafka43-torn"), tmp_path / "report.html"
    before = fingerprint(data)
    done = kafkafs("report", "--deep", data, "-o", page)
    assert (done.exit_code, done.stderr) == (0, "")
    first = done.stdout.splitlines()[0]
    assert first.startswith("bad: ")
    assert "damaged, in " in first
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert first.removeprefix("bad: ") in text
    assert differences(before, fingerprint(data)) == []


def test_a_topic_to_stdout(kafkafs: Kafkafs, clean: Path) -> None:
    done = kafkafs("report", clean, "orders/1", "-o", "-", "--at", "2026-09-03T12:00")
    assert done.exit_code == 0
    assert done.stdout.endswith("</html>\n")
    assert "orders/1" in done.stdout
    assert "orders/0" not in done.stdout
    assert "As of 2026-09-03 12:00:00 UTC" in done.stdout
    assert "2026-09-04" not in done.stdout


def test_where_no_file_can_be_created_nothing_is_read(kafkafs: Kafkafs, tmp_path: Path) -> None:
    page = tmp_path / "none" / "report.html"
    done = kafkafs("report", tmp_path / "data", "-o", page)
    what = f"{page} cannot be created: {page.parent} cannot be written to"
    assert (done.exit_code, done.stderr.partition(";")[0]) == (2, f"kafkafs report: {what}")


@pytest.mark.parametrize("name", ["report.html", "orders-0/report.html", "new/report.html"])
def test_no_page_is_put_in_a_log_directory(
    kafkafs: Kafkafs, clean: Path, tmp_path: Path, name: str
) -> None:
    link = tmp_path / "link"
    link.symlink_to(clean)
    for page in (clean / name, link / name):
        for log_dir in (clean, tmp_path / "other"):
            done = kafkafs("report", log_dir, "-o", page)
            assert done.exit_code == 2
            what = f"{page} is in the log directory {clean}, which a report does not change"
            assert what in done.stderr
    assert not (clean / name).exists()


def test_a_full_disk_is_reported_with_the_name_of_the_file(kafkafs: Kafkafs, clean: Path) -> None:
    done = kafkafs("report", clean, "one", "-o", "/dev/full")
    assert (done.exit_code, done.stderr) == (1, "kafkafs: /dev/full: No space left on device\n")


def test_without_the_extra_it_says_what_to_install(
    kafkafs: Kafkafs, clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = kafkafs("report", clean, "-o", tmp_path / "report.html")
    advice = "pip install 'kafkafs[report]'"
    what = "jinja2 and plotly, which are not installed"
    assert (done.exit_code, done.stderr) == (1, f"kafkafs: report needs {what}: {advice}\n")
    assert not (tmp_path / "report.html").exists()
