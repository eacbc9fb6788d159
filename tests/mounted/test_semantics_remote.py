"""The promises of SEMANTICS.md about URLs, archives and remote storage, one by one."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkafs
from tests import servers
from tests.mounted.conftest import Mounting
from tests.mounted.conversing import ask
from tests.mounted.live import LiveLog
from tests.mounted.mounting import Mount, errno_of
from tests.mounted.promises import promise
from tests.waiting import wait_until

Corpus = Callable[[str], Path]


@promise(
    "Of log directories at a URL or in an archive, every file that does not change has the same"
    " name, size and content as if they were on a disk."
)
@promise(
    "The metrics of such a mount count the requests, those that were repeated, those that failed,"
    " and the bytes that arrived."
)
def test_a_url_and_an_archive(tmp_path: Path, corpus: Corpus, mount: Mounting) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for path in (*corpus("kafka43-clean").glob("*"), corpus("kafka43-clean") / "orders-0"):
        if path.is_file():
            shutil.copy(path, source)
        elif path.name == "orders-0":
            shutil.copytree(path, source / path.name, dirs_exist_ok=True)
    subprocess.run(["tar", "-czf", tmp_path / "a.tar.gz", "-C", source, "."], check=True)
    expected = files(mount(source).point)
    assert len(expected) > 20
    assert files(mount(tmp_path / "a.tar.gz").point) == expected
    with servers.web(source) as url:
        mounted = mount(url)
        assert files(mounted.point) == expected
        metrics = dict(
            line.rsplit(" ", 1)
            for line in (mounted.point / ".kafkafs/metrics").read_text().splitlines()
            if line.startswith("kafkafs_remote_")
        )
        assert float(metrics['kafkafs_remote_requests_total{operation="read"}']) >= 1
        assert float(metrics["kafkafs_remote_retries_total"]) == 0
        assert float(metrics["kafkafs_remote_failures_total"]) == 0
        assert float(metrics["kafkafs_remote_read_bytes_total"]) > 100_000
        mounted.end()


def files(point: Path) -> dict[str, bytes]:
    """Returns what does not change of a mount's partition."""
    partition = point / "orders/0"
    streams = ("values", "keys", "records.jsonl", "offset/600", "offset/600.json")
    paths = [*(partition / "segments").iterdir(), *(partition / name for name in streams)]
    found = {str(path.relative_to(point)): path.read_bytes() for path in paths}
    assert all(os.stat(point / name).st_size == len(data) for name, data in found.items())
    return found


@promise(
    "At a URL, new records and segments are shown as soon as the listing is older than"
    " `kafkafs.remote.list.ms`, not within a second."
)
def test_a_log_behind_a_url_that_grows(live: LiveLog, mount: Mounting) -> None:
    with servers.web(live.directory) as url:
        mounted = mount(url, settings={"kafkafs.remote.list.ms": "100"})
        values = mounted.point / "t/0/values"
        before = values.read_bytes()
        live.append(1)
        assert wait_until(lambda: (now := values.read_bytes()) != before and now)
        assert values.read_bytes().startswith(before)
        mounted.end()


@promise(
    "With `-o tier=DIR`, a partition's directories and streams continue from remote storage into"
    " the local log without a gap, and its start is that in remote storage."
)
@promise(
    "`status.json` of a partition says where the local log begins, what is read from remote"
    " storage, and which older offsets are in remote storage and are not read because it was not"
    " named."
)
def test_remote_storage(corpus: Corpus, mount: Mounting) -> None:
    tiered = corpus("tier43")
    partition = (
        mount(tiered / "logs", settings={"kafkafs.tier": str(tiered / "tier")}).point / "t-lz4/0"
    )
    lines = (partition / "records.jsonl").read_text().splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [*range(371)]
    assert os.readlink(partition / "offset/first") == "0"
    assert (partition / "offset/200").exists()
    with kafkafs.open(tiered / "logs", tier=tiered / "tier") as d:
        assert (partition / "offset/50").read_bytes() == d["t-lz4", 0].record(50).value
    status = json.loads((partition / "status.json").read_text())
    assert (status["logStartOffset"], status["localLogStartOffset"]) == (0, 201)
    assert (status["remote"]["segments"], status["remote"]["unreadFrom"]) == (2, -1)
    alone = json.loads((mount(tiered / "logs").point / "t-lz4/0/status.json").read_text())
    assert (alone["logStartOffset"], alone["remote"]["segments"]) == (201, 0)
    assert (alone["remote"]["unreadFrom"], alone["remote"]["unreadUntil"]) == (0, 201)


@pytest.fixture
def tiered(tmp_path: Path, corpus: Corpus) -> Path:
    """A copy of a broker's log directory and remote storage, `logs` and `tier`."""
    return Path(shutil.copytree(corpus("tier43"), tmp_path / "tiered"))


@pytest.fixture
def written(tiered: Path, mount: Mounting) -> Mount:
    mounted = mount(tiered / "logs", "writable")
    mounted.expects_warnings = True
    return mounted


def remote_files(tiered: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in (tiered / "tier").rglob("*") if p.is_file()}


def served(tiered: Path, topic: str) -> list[int]:
    """Returns the offsets in both places."""
    with kafkafs.open(tiered / "logs", tier=tiered / "tier") as d:
        return [record.offset for record in d[topic, 0].records()]


@promise("With `-o tier=DIR`, a mount cannot be writable.")
def test_remote_storage_is_not_written_to(tiered: Path, mount: Mounting) -> None:
    with pytest.raises(AssertionError, match="remote storage is only read"):
        mount(tiered / "logs", "writable", settings={"kafkafs.tier": str(tiered / "tier")})


@promise(
    "On a writable mount, a removal in a topic with remote storage sets the log start offset of the"
    " whole log, as DeleteRecords does: older records, which only remote storage has, are deleted"
    " with it, the log says which, and mounts with `-o tier=DIR` no longer show them."
)
@promise("A writable mount changes nothing in remote storage.")
@pytest.mark.parametrize(
    ("name", "start"),
    [("offset/358", 359), ("offset/400", 401), ("segments/00000000000000000358.log", 525)],
)
def test_removals_reach_into_remote_storage(
    tiered: Path, written: Mount, name: str, start: int, mount: Mounting
) -> None:
    before = remote_files(tiered)
    (written.point / "t-none/0" / name).unlink()
    log = (written.point / ".kafkafs/log").read_text()
    assert "t-none-0: offsets 0 to 357 are deleted, too, which are in remote storage only" in log
    assert written.end() == 0
    assert served(tiered, "t-none") == list(range(start, 559))
    shown = mount(tiered / "logs", settings={"kafkafs.tier": str(tiered / "tier")})
    assert os.readlink(shown.point / "t-none/0/offset/first") == str(start)
    assert remote_files(tiered) == before


@promise(
    "Of such a topic, `expire`, and retention with the option `maintain`, delete the local segments"
    " that `local.retention.ms` and `local.retention.bytes` allow and that remote storage has, and"
    " leave the log start offset as it is."
)
def test_retention_of_local_segments(tiered: Path, written: Mount) -> None:
    partition = written.point / "t-none/0"
    segments = json.loads((partition / "why.json").read_text())["segments"]
    assert [each["retention"]["rule"] for each in segments] == ["local.retention.ms", None]
    rows = ask(written.point, "expire t-none/0 t-open/0")
    assert [(row["baseOffset"], row["rule"]) for row in rows] == [(358, "local.retention.ms")]
    assert ask(written.point, "run retention")[0]["task"] == "retention"
    assert written.end() == 0
    assert len(list((tiered / "logs/t-open-0").glob("*.log"))) == 11
    assert served(tiered, "t-none") == list(range(559))
    assert served(tiered, "t-open") == list(range(60))


@promise(
    "A topic of which remote storage has segments, or may have, is not deleted: `rmdir T` is"
    " ENOTEMPTY, `delete-topic` is refused, and the log says what is there. With `keep-remote`,"
    " `delete-topic` deletes what is here."
)
def test_topics_in_remote_storage(tiered: Path, written: Mount) -> None:
    topic = written.point / "t-gzip"
    assert os.listdir(topic / "0/offset") == []
    assert errno_of(topic.rmdir) == errno.ENOTEMPTY
    assert (
        "segments of t-gzip/0 with offsets 0 to 350" in (written.point / ".kafkafs/log").read_text()
    )
    (refused,) = ask(written.point, "delete-topic t-gzip")
    assert refused["kind"] == "InRemoteStorage"
    assert (topic / "0").is_dir()
    (deleted,) = ask(written.point, "delete-topic t-gzip keep-remote")
    assert deleted["deleted"]
    assert "with offsets 0 to 350" in deleted["warning"]
    wait_until(lambda: not topic.exists())
    assert list(tiered.glob("tier/*/t-gzip-0-*"))


@promise(
    "While remote storage has segments of a topic, `remote.storage.enable` cannot be disabled, and"
    ' `cleanup.policy` cannot include "compact": EINVAL.'
)
def test_configs_of_remote_storage(written: Mount) -> None:
    config = written.point / "t-gzip/config.properties"
    before = config.read_text()
    for line in ("remote.storage.enable=false", "cleanup.policy=compact"):
        changed = f"{before}{line}\n"
        assert errno_of(lambda text=changed: config.write_text(text)) == errno.EINVAL
        assert config.read_text() == before


@promise(
    "While records are in remote storage only, `rm time/T` is EPERM in their partition: their times"
    " are not known."
)
def test_times_of_remote_storage(tiered: Path, written: Mount) -> None:
    times = written.point / "t-none/0/time"
    listed = os.listdir(times)
    for name in (listed[0], listed[-1], "0"):
        assert errno_of((times / name).unlink) == errno.EPERM
    (written.point / "t-none/0/offset/358").unlink()
    (times / listed[-1]).unlink()
    assert written.end() == 0
    assert served(tiered, "t-none")[0] > 359
