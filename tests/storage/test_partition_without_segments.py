"""Tests a partition directory that a broker has just created, before its first segment."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkafs.storage.errors import OffsetNotFound
from kafkafs.storage.log_dirs.engine import Engine


def test_it_is_an_empty_partition(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    (tmp_path / "t-0").mkdir()
    view = Engine(str(tmp_path)).log("t", 0).view()
    assert (view.start_offset, view.last_stable_offset, view.end_offset) == (0, 0, 0)
    assert list(view.scan()) == []
    assert view.first() is None
    assert view.last() is None
    assert view.offset_for_time(0) is None
    with pytest.raises(OffsetNotFound):
        view.find(0)
