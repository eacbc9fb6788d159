"""Tests which class data archive the JVMs of Spark are given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.spark import class_data
from tests.spark.class_data import FAST_START, options


@pytest.mark.parametrize(("build", "is_usable"), [("build", True), ("a build", False)])
def test_only_the_archive_of_these_jars_is_used(
    build: str, is_usable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "jars" / "spark.jar"
    jar.parent.mkdir()
    jar.touch()
    (tmp_path / build).mkdir()
    monkeypatch.setattr(class_data, "BUILD", tmp_path / build)
    monkeypatch.setattr(class_data, "spark_home", lambda: tmp_path)
    monkeypatch.setattr(class_data, "archive", class_data.archive.__wrapped__)
    assert options() == FAST_START
    class_data.archive().touch()
    with_archive = f"{FAST_START} -XX:SharedArchiveFile={class_data.archive()}"
    assert (options() == with_archive) is is_usable
    os.utime(jar, (1, 1))
    assert options() == FAST_START
