"""The promises of SEMANTICS.md about URLs, archives and remote storage, one by one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import kafkafs
from tests import servers
from tests.mounted.conftest import Mounting
from tests.mounted.live import LiveLog
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
