"""Everyday programs on a mount, one at a time and many in parallel."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import answers
from tests.mounted.conftest import Mounting
from tests.mounted.live import LiveLog, value
from tests.mounted.mounting import errno_of, sh
from tests.waiting import PATIENCE_SECONDS, wait_until

CLEAN = "kafka43-clean"


@pytest.fixture
def orders(clean: Path) -> Path:
    return clean / "orders" / "0"


@pytest.fixture(scope="module")
def records() -> list[answers.ExpectedRecord]:
    return list(answers.records(CLEAN, "orders", 0))


def test_ls_and_wc(orders: Path, records: list[answers.ExpectedRecord]) -> None:
    assert int(sh("ls -U offset | wc -l", orders)) == len(records) + 2
    assert sh("ls -l offset/600 | cut -c1-10", orders) == "-r--r--r--\n"


def test_find_newer_than(orders: Path, records: list[answers.ExpectedRecord]) -> None:
    since = "2026-09-05T00:00:00Z"
    found = sh(f"find offset -type f -newermt {since} | wc -l", orders)
    assert int(found) == sum(record.timestamp > 1_788_566_400_000 for record in records)


def test_find_by_size(orders: Path, records: list[answers.ExpectedRecord]) -> None:
    found = sh("find offset -type f -size +250c | wc -l", orders)
    assert int(found) == sum(len(record.value or b"") > 250 for record in records)


def test_grep(orders: Path, records: list[answers.ExpectedRecord]) -> None:
    found = {int(Path(name).name) for name in sh("grep -rl willow offset", orders).split()}
    assert found == {record.offset for record in records if b"willow" in (record.value or b"")}
    assert int(sh("grep -c willow values || true", orders)) == len(found)


def test_jq(orders: Path, records: list[answers.ExpectedRecord]) -> None:
    largest = sh("jq -r '.value | fromjson | .total' records.jsonl | sort -n | tail -1", orders)
    assert float(largest) > 0
    assert sh("jq -r .key records.jsonl", orders).encode().splitlines() == [
        record.key for record in records
    ]


def test_copying(clean: Path, tmp_path: Path) -> None:
    sh(f"cp -r --preserve=timestamps offset {tmp_path}/copy", clean / "unordered" / "0")
    for record in answers.records(CLEAN, "unordered", 0):
        copied = tmp_path / "copy" / str(record.offset)
        assert copied.read_bytes() == record.value
        assert copied.stat().st_mtime_ns == record.timestamp * 1_000_000
    assert (tmp_path / "copy" / "last").readlink() == Path(str(record.offset))


def test_tar(clean: Path, tmp_path: Path) -> None:
    sh(
        f"tar -cf {tmp_path}/a.tar offset && tar -C {tmp_path} -xf {tmp_path}/a.tar",
        clean / "idem/0",
    )
    for record in answers.records(CLEAN, "idem", 0):
        assert (tmp_path / "offset" / str(record.offset)).read_bytes() == record.value


def test_getfattr(orders: Path) -> None:
    shown = sh("getfattr --absolute-names -d -m - offset/600", orders)
    assert 'user.kafka.key="customer-519"' in shown
    assert sh("getfattr --only-values -n user.kafka.offset offset/600", orders) == "600"


def test_a_shell_in_the_tree(orders: Path) -> None:
    assert sh("cd offset && cat 600 ../offset/600 ./600 | wc -l && /bin/pwd", orders).endswith(
        "/orders/0/offset\n"
    )


def test_head_leaves_early(orders: Path) -> None:
    assert sh("set +o pipefail; cat values | head -1 | wc -l", orders) == "1\n"
    assert sh("head -c 10 records.arrow | wc -c", orders) == "10\n"


def test_head_leaves_the_rest_of_a_followed_log(orders: Path) -> None:
    """It seeks back to the end of the line that it printed."""
    first, second = sh("head -n 2 records.jsonl", orders).splitlines()
    assert sh("head -n 1 follow.jsonl 2>&1", orders) == f"{first}\n"
    assert sh("(head -n 1; head -n 1) < follow.jsonl 2>&1", orders) == f"{first}\n{second}\n"
    assert sh("set +o pipefail; tail -c +3 follow.jsonl | head -n 1", orders) == f"{first[2:]}\n"


def test_grep_stops_following(orders: Path) -> None:
    assert sh("grep -m1 order follow | wc -l", orders) == "1\n"


def interrupted_reads(point: Path) -> int:
    """Returns the number of reads that the daemon has ended with EINTR."""
    found = re.search(
        r'^kafkafs_request_errors_total\{errno="EINTR",operation="read"\} (\d+)',
        (point / ".kafkafs/metrics").read_text(),
        re.M,
    )
    return int(found[1]) if found else 0


@pytest.mark.parametrize("program", ["cat", "grep .", "tail -n +1 -f", "python"])
def test_ctrl_c_ends_who_follows(live: LiveLog, mount: Mounting, program: str) -> None:
    point = mount(live.directory).point
    where = point / "t" / "0"
    command = [*program.split(), "follow"]
    if program == "python":
        script = "import sys\nfor line in open('follow', 'rb'): sys.stdout.buffer.write(line)"
        command = [sys.executable, "-u", "-c", script]
    reader = subprocess.Popen(command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert reader.stdout is not None
    if program == "cat":
        assert reader.stdout.readline() == value(0) + b"\n"
    # Twice, so that the program has repeated the read that failed first.
    wait_until(lambda: interrupted_reads(point) >= 2)
    assert reader.poll() is None
    reader.send_signal(signal.SIGINT)
    assert reader.wait(PATIENCE_SECONDS) != 0  # nothing else ends its read
    reader.stdout.close()


def test_many_readers_at_once(clean: Path, records: list[answers.ExpectedRecord]) -> None:
    """More readers than there are threads, on all kinds of file."""
    values = b"".join((record.value or b"") + b"\n" for record in records)
    where = clean / "orders" / "0"

    def read(turn: int) -> bool:
        if turn % 3 == 0:
            return (where / "values").read_bytes() == values
        if turn % 3 == 1:
            return len(os.listdir(where / "offset")) == len(records) + 2
        chosen = records[turn * 37 % len(records)]
        return (where / "offset" / str(chosen.offset)).read_bytes() == chosen.value

    with ThreadPoolExecutor(64) as pool:
        assert all(pool.map(read, range(192)))


def test_many_followers(live: LiveLog, mount: Mounting) -> None:
    """More followers than there are threads, while all other requests are still answered."""
    point = mount(live.directory).point
    path = point / "t" / "0" / "follow"
    files = [os.open(path, os.O_RDONLY) for _ in range(100)]
    found = [b""] * len(files)

    def read(at: int) -> None:
        while not found[at].endswith(value(6) + b"\n"):
            found[at] += os.read(files[at], 1 << 16)

    threads = [threading.Thread(target=read, args=(at,)) for at in range(len(files))]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(found))
    # All followers wait until this is answered: nothing is appended before.
    assert (point / "t" / "0" / "offset" / "3").read_bytes() == value(3)
    live.append()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    expected = b"".join(value(at) + b"\n" for at in range(7))
    assert found == [expected] * len(files)
    for file in files:
        os.close(file)


def test_one_file_opened_many_times(clean: Path, records: list[answers.ExpectedRecord]) -> None:
    """Small files are passed to the kernel on open, but never while another process reads them."""
    path = clean / "orders" / "0" / "offset" / "17"

    def read(_turn: int) -> bytes:
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return file.read()

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(read, range(400))) == {records[17].value}


@pytest.mark.parametrize("allowed", [False, True])
def test_other_users(live: LiveLog, mount: Mounting, tmp_path: Path, allowed: bool) -> None:
    for parent in live.directory.parents:
        if parent.stat().st_mode & 0o5 != 0o5:  # those above the tests' directories are open to all
            parent.chmod(0o755)
    point = mount(live.directory, "allow_other" if allowed else "").point
    point.parent.chmod(0o755)
    command = ["cat", str(point / "t" / "0" / "offset" / "3")]
    if os.getuid() == 0:
        done = subprocess.run(command, user=65534, capture_output=True, check=False)
    else:
        as_other = ["sudo", "-n", "-u", "#65534", *command]
        done = subprocess.run(as_other, capture_output=True, check=False)
    assert (done.stdout == value(3)) is allowed
    if not allowed:
        assert b"Permission denied" in done.stderr


def test_a_path_cannot_write_lines_into_the_log(
    tmp_path: Path, mount: Mounting, corpus: Callable[[str], Path]
) -> None:
    live = LiveLog(tmp_path / "lo\ngs \x1b[31m WARNING: forged")
    live.damage(2)
    mounted = mount(live.directory)
    with pytest.raises(OSError, match="Input/output"):
        (mounted.point / "t" / "0" / "offset" / "2").read_bytes()
    (line,) = mounted.lines("WARNING")
    assert "lo\\ngs \\x1b[31m WARNING: forged" in line


def test_a_log_directory_that_goes_and_comes_back(live: LiveLog, mount: Mounting) -> None:
    mounted = mount(live.directory)
    record = mounted.point / "t" / "0" / "offset" / "3"
    assert record.read_bytes() == value(3)
    moved = live.directory.with_name("moved")
    live.directory.rename(moved)
    wait_until(lambda: errno_of(os.stat, record) == errno.EIO)
    (line,) = mounted.lines("WARNING")
    assert line.endswith(f"{live.directory}: the directory no longer exists")
    moved.rename(live.directory)
    wait_until(lambda: errno_of(os.stat, record) == 0)
    assert record.read_bytes() == value(3)
