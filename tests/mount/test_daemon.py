"""The daemon's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkafs.mount.options import MountOptions
from kafkafs.mount.session.daemon import log_as_daemon


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """The file that everything is logged to during a test."""
    root, path = logging.getLogger(), tmp_path / "log"
    level, handlers = root.level, list(root.handlers)
    log_as_daemon(MountOptions(log=str(path)))
    yield path
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)


def test_an_answer_that_came_too_late_is_no_news(log: Path) -> None:
    fuse = logging.getLogger("pyfuse3._pyfuse3")
    fuse.error("fuse_release(): fuse_reply_* failed with %s", "No such file or directory")
    fuse.error("fuse_read(): fuse_reply_* failed with %s", "Invalid argument")
    logging.getLogger("kafkafs").error("failed with %s", "No such file or directory")
    lines = log.read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == [
        "ERROR fuse_read(): fuse_reply_* failed with Invalid argument",
        "ERROR failed with No such file or directory",
    ]
