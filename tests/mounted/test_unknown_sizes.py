"""Streams whose size is not known yet: whatever a program relies on, it never loses bytes silently.

The daemons here find no size while a file exists (`held.py`), so nothing depends on timing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.mounted.live import LiveLog
from tests.mounted.mounting import Mount, mounted, sh
from tests.mounted.promises import promise
from tests.waiting import wait_until

PROGRAM_SECONDS = 100.0
#: Programs that read to the end; they output all of the file {f}. {tmp} is an empty directory.
READERS = {
    "cat": "cat {f}",
    "cp": "cp {f} {tmp}/v; cat {tmp}/v",
    "dd": "dd if={f} bs=4096 status=none",
    "gzip": "gzip -1c {f} | gunzip",
    "split": "split -b 1000000 -a 4 {f} {tmp}/part.; cat {tmp}/part.*",
    "shutil.copy": "python -c \"import shutil; shutil.copy('{f}', '{tmp}/v')\"; cat {tmp}/v",
}
#: Programs that use the size, map the file, or have the kernel copy it.
TRUSTING = {
    "rsync": "rsync {f} {tmp}/v; cat {tmp}/v",
    "tar": "tar -cf {tmp}/t {f}; tar -xOf {tmp}/t",
    "zip": "zip -1 {tmp}/z {f} >&2; python -m zipfile -e {tmp}/z.zip {tmp}; cat {tmp}/{f}",
    "head -c": "head -c $(stat -c %s {f}) {f}",
    "wc -c": "size=$(wc -c < {f}); test $size = $(cat {f} | wc -c); cat {f}",
    "tail -c": "tail -c +1 {f}",
    "read": """python -c "
import os, sys
with open('{f}', 'rb', buffering=0) as file:
    left = os.fstat(file.fileno()).st_size
    while left and (data := file.read(left)):
        left -= len(data)
        sys.stdout.buffer.write(data)" """,
    "tarfile": """python -c "
import tarfile
with tarfile.open('{tmp}/t', 'w') as archive:
    archive.add('{f}')"; tar -xOf {tmp}/t""",
    "sendfile": """python -c "
import os
source, target, done = os.open('{f}', 0), os.open('{tmp}/v', os.O_CREAT | os.O_WRONLY), 0
while count := os.sendfile(target, source, done, 1 << 20):
    done += count"; cat {tmp}/v""",
    "splice": """python -c "
import os, sys
source, (end, pipe) = os.open('{f}', 0), os.pipe()
while count := os.splice(source, pipe, 65536):
    sys.stdout.buffer.write(os.read(end, count))" """,
    "mmap": """python -c "
import mmap, sys
with open('{f}', 'rb') as file:
    sys.stdout.buffer.write(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:])" """,
    "private mmap": """python -c "
import mmap, sys
with open('{f}', 'rb') as file:
    mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    sys.stdout.buffer.write(mapped[:])" """,
}
#: Python that prints how many records `records.jsonl` or `records.arrow` has.
LIBRARIES = {
    "DuckDB": (
        "import duckdb as d; print(d.sql(\"select count(*) from read_json_auto('records.jsonl',"
        ' maximum_object_size=4000000)").fetchall()[0][0])'
    ),
    "polars": "import polars as p; print(p.scan_ndjson('records.jsonl').collect().height)",
    "pyarrow open_stream": (
        "import pyarrow as p; print(p.ipc.open_stream('records.arrow').read_all().num_rows)"
    ),
    "pyarrow memory_map": (
        "import pyarrow as p;"
        " print(p.ipc.open_stream(p.memory_map('records.arrow')).read_all().num_rows)"
    ),
}


def run(program: str, name: str, where: Path, place: Path) -> subprocess.CompletedProcess[bytes]:
    """Runs a program on the file `name`."""
    empty = place / "empty"
    empty.mkdir(exist_ok=True)
    for left in empty.iterdir():
        left.unlink()
    command = program.replace("{tmp}", str(empty)).replace("{f}", name)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", f"set -e -o pipefail; {command}"],
        cwd=where,
        env=os.environ | {"PATH": path},
        capture_output=True,
        check=False,
        timeout=PROGRAM_SECONDS,
    )


def is_loud(done: subprocess.CompletedProcess[bytes]) -> bool:
    """Returns whether a program reported an error. zip takes one for the end of the file, and
    warns."""
    return done.returncode != 0 or b"zip warning" in done.stderr + done.stdout


def records_of(script: str, where: Path, place: Path) -> int | None:
    """Returns the count that Python prints; None if it fails."""
    done = run("python -c '" + script.replace("'", "'\\''") + "'", "", where, place)
    return int(done.stdout) if done.returncode == 0 else None


@pytest.fixture
def live(tmp_path: Path) -> LiveLog:
    return LiveLog(tmp_path / "logs")


@pytest.fixture
def hold(tmp_path: Path) -> Path:
    """No size is found while this file exists."""
    path = tmp_path / "hold"
    path.touch()
    return path


@pytest.fixture
def mount(live: LiveLog, hold: Path, tmp_path: Path) -> Iterator[Callable[[], Mount]]:
    """`mount()` mounts the log once it has been written."""
    with ExitStack() as stack:

        def start() -> Mount:
            settings = {"kafkafs.size.wait.ms": "0"}
            context = mounted([live.directory], tmp_path, settings=settings, holding=hold)
            mount = stack.enter_context(context)
            mount.expects_warnings = True
            return mount

        yield start


@promise(
    "A program that stops at a bound reported by `stat` has read all of the stream or has received"
    " an error: if the stream continues, the read that reaches the bound is EIO, and from then on"
    " the name leads to another inode with a larger bound."
)
def test_samples_that_mislead(live: LiveLog, mount: Callable[[], Mount], tmp_path: Path) -> None:
    live.append_misleading()
    mounted = mount()
    where = mounted.point / "t" / "0"
    for name, program in (READERS | TRUSTING).items():
        before = (where / "values").stat()
        live.append()  # so that this state of the log is unread
        wait_until(lambda: (where / "values").stat().st_ino != before.st_ino)  # noqa: B023
        assert (where / "values").stat().st_size < len(live.lines())
        done = run(program, "values", where, tmp_path)
        assert is_loud(done), name
        assert live.lines().startswith(done.stdout) or name in ("tar", "tarfile")
    assert any("t/0/values: it is larger than" in line for line in mounted.lines("WARNING"))
    bounds = []
    while (done := run("cat {f}", "values", where, tmp_path)).returncode:
        bounds.append((where / "values").stat().st_size)
        assert len(bounds) < 50
    assert done.stdout == live.lines()
    assert bounds == sorted(bounds)


@pytest.mark.slow
@promise(
    "Of a stream whose size is unknown, `cat`, `head` and `jq` get the first bytes at once, and"
    " programs that read to the end get all of them; programs that rely on sizes get all bytes or"
    " fail."
)
def test_while_the_size_is_sought(
    live: LiveLog, mount: Callable[[], Mount], hold: Path, tmp_path: Path
) -> None:
    for _ in range(8):
        live.roll()
        live.append_large(1 << 18)
        live.append(3)
    whole = live.lines()
    where = mount().point / "t" / "0"
    first = json.loads(sh("head -n1 records.jsonl", where))
    assert (first["offset"], first["value"]) == (0, "value 0")
    assert json.loads(sh("jq -cn input records.jsonl", where)) == first
    assert sh("head -c1 values", where) == "v"
    assert sh("head -n1 values", where) == "value 0\n"
    assert sh("dd if=values bs=20 count=1 status=none", where).encode() == whole[:20]
    assert sh("wc -l < values", where) == f"{live.end}\n"
    assert (where / "values").stat().st_size > len(whole)
    for program in READERS.values():
        done = run(program, "values", where, tmp_path)
        assert (done.returncode, done.stdout == whole) == (0, True), (program, done.stderr)
    for program in TRUSTING.values():
        done = run(program, "values", where, tmp_path)
        assert is_loud(done) or done.stdout == whole, program
    for script in LIBRARIES.values():
        assert records_of(script, where, tmp_path) in (live.end, None), script
    hold.unlink()
    for name in ("values", "records.jsonl", "records.arrow"):
        await_size(where / name)
    assert (where / "values").stat().st_size == len(whole)
    for program in (READERS | TRUSTING).values():
        done = run(program, "values", where, tmp_path)
        assert (done.returncode, done.stdout == whole) == (0, True), (program, done.stderr)
    for script in LIBRARIES.values():
        assert records_of(script, where, tmp_path) == live.end, script


def await_size(path: Path) -> None:
    """Waits until the size of a stream is known; a bound is a multiple of 64 KiB."""
    with path.open("rb") as file:
        wait_until(lambda: os.fstat(file.fileno()).st_size % 65536)


@pytest.mark.slow
@promise(
    "Damage ends every program that reaches it with an error, also one that maps the stream or has"
    " the kernel copy it."
)
def test_damage_that_was_not_known_when_the_stream_was_opened(
    live: LiveLog, mount: Callable[[], Mount], hold: Path, tmp_path: Path
) -> None:
    values = [b"%04d" % number * 250 for number in range(600)]
    live.create(values)
    data = bytearray(live.active().read_bytes())
    data[data.index(values[300]) + 100] ^= 4
    live.active().write_bytes(data)
    before = b"".join(value + b"\n" for value in values[:300])
    where = mount().point / "t" / "0"
    for is_known in (False, True):
        for name, program in (READERS | TRUSTING).items():
            done = run(program, "values", where, tmp_path)
            assert is_loud(done), (name, is_known)
            if name in ("cat", "dd"):
                assert (done.stdout, b"Input/output error" in done.stderr) == (before, True), name
        for script in LIBRARIES.values():
            assert records_of(script, where, tmp_path) is None, (script, is_known)
        if not is_known:
            hold.unlink()
            for name in ("values", "records.jsonl", "records.arrow"):
                with (where / name).open("rb") as file:
                    wait_until(lambda: os.fstat(file.fileno()).st_size % 65536)


@promise(
    "The size of a dump is exact if the dump has at most 1 MiB; that of a longer one is a bound as"
    " in 6.13 and 6.14."
)
def test_sizes_of_dumps(live: LiveLog, mount: Callable[[], Mount], tmp_path: Path) -> None:
    live.roll()
    live.append(12_000)
    live.append_large(1 << 22)  # the data before it suggests a much smaller size
    where = mount().point / "t" / "0" / "dump"
    short, long = "00000000000000000000.log.txt", f"{6:020}.log.txt"
    assert set(os.listdir(where)) >= {short, long}
    for name in (short, long):
        done = run("cat {f}", name, where, tmp_path)
        while done.returncode:  # the bound grows until it is large enough
            assert b"Input/output error" in done.stderr
            done = run("cat {f}", name, where, tmp_path)
        assert done.stdout.startswith(b"Log starting offset: ")
        size = (where / name).stat().st_size
        if name == short:
            assert size == len(done.stdout) < 1 << 20
            for program in (READERS | TRUSTING).values():
                assert run(program, name, where, tmp_path).stdout == done.stdout
        else:
            assert size > len(done.stdout) > 1 << 22
            assert size % 65536 == 0
            for program in ("tar", "mmap", "sendfile", "read"):
                found = run(TRUSTING[program], name, where, tmp_path)
                assert is_loud(found) or found.stdout == done.stdout
