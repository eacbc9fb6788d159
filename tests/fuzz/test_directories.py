"""Log directories with arbitrary contents: random names, special files, and small files of
garbage."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import BatchFields, build_batch
from tests.conftest import differences, fingerprint
from tests.fuzz import targets

LOG = build_batch([SimpleRecord(5, b"k", b"v")] * 3) + build_batch(
    [SimpleRecord(6, b"k", b"v")], BatchFields(base_offset=3)
)
CONTENTS = st.sampled_from([b"", LOG, LOG[:-3], bytes(50), b"0\n1\nt 0 2\n", b"\xff" * 40])
CONTENTS = st.one_of(CONTENTS, st.binary(max_size=100))

DIRECTORY_NAMES = st.one_of(
    st.sampled_from(
        [
            "t-0", "t-1", "a.b-c-0", "t--1", "t-", "-0", "t-00", "t-+1", "t-2147483648", "..-0",
            "t-0.0123456789abcdef0123456789abcdef-delete", "t-0.x-delete", "t-0-future",
            "__cluster_metadata-0", "remote-log-index-cache", "ü-0", "t\n-0", "x" * 255,
        ]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=20),
)  # fmt: skip
FILE_NAMES = st.one_of(
    st.builds(
        "{:020}{}{}".format,
        st.sampled_from([0, 3, 4, 100, (1 << 63) - 1, 1 << 63, 10**20 - 1]),
        st.sampled_from([".log", ".index", ".timeindex", ".txnindex", ".snapshot"]),
        st.sampled_from(["", "", "", ".deleted", ".cleaned", ".swap"]),
    ),
    st.sampled_from(
        [
            "0.log", ".log", "leader-epoch-checkpoint", "partition.metadata", "quorum-state",
            "00000000000000000000-0000000001.checkpoint", "meta.properties", "bootstrap.checkpoint",
            "log-start-offset-checkpoint", "recovery-point-offset-checkpoint", ".lock",
        ]
    ),
)  # fmt: skip
KINDS = st.sampled_from(["file"] * 12 + ["directory", "fifo", "symlink", "loop", "unreadable"])
ENTRIES = st.lists(st.tuples(FILE_NAMES, KINDS, CONTENTS), max_size=8)


def make(path: Path, kind: str, content: bytes) -> None:
    """Creates an entry at `path`, unless it exists or the name is not allowed."""
    if len(os.fsencode(path.name)) > 255 or path.name in (".", "..") or os.path.lexists(path):
        return
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "symlink":
        path.symlink_to("/etc/passwd")
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        path.write_bytes(content)
        path.chmod(0 if kind == "unreadable" else 0o600)


@given(ENTRIES, st.lists(st.tuples(DIRECTORY_NAMES, ENTRIES), max_size=4))
def test_a_directory_of_anything_is_read_or_refused_and_never_changed(
    beside: list[tuple[str, str, bytes]],
    directories: list[tuple[str, list[tuple[str, str, bytes]]]],
) -> None:
    with TemporaryDirectory() as name:
        root = Path(name)
        for entry in beside:
            make(root / entry[0], *entry[1:])
        for directory, entries in directories:
            make(root / directory, "directory", b"")
            if (root / directory).is_dir() and not (root / directory).is_symlink():
                for entry in entries:
                    make(root / directory / entry[0], *entry[1:])
        before = fingerprint(root)
        targets.log_dir(root)
        assert differences(before, fingerprint(root)) == []
