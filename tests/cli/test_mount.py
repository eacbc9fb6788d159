"""Tests of `kafkafs mount` and `umount`, by hand and from fstab, with real mounts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import kafkafs
from kafkafs import ProducerRecord
from tests.cli.results import Corpus, Shell
from tests.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.mounted


LATE = ("old", "older")


@pytest.fixture
def mountpoint(tmp_path: Path) -> Iterator[Path]:
    """An empty directory to mount on; unmounted at the end if necessary."""
    directory = tmp_path / "mnt"
    directory.mkdir()
    yield directory
    if os.path.ismount(directory):
        subprocess.run(["umount", "--lazy", directory], check=True)


def test_mount_returns_when_the_mount_answers(shell: Shell, clean: Path, mountpoint: Path) -> None:
    done = shell(
        f"kafkafs mount {clean} {mountpoint} && cat {mountpoint}/orders/0/offset/600"
        f" && kafkafs umount {mountpoint} && ls -A {mountpoint}"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith('{"order":1780,')
    assert done.stdout.endswith("}")


def test_maintain_says_what_is_deleted_at_once(
    warm_shell: Shell, tmp_path: Path, mountpoint: Path
) -> None:
    data = tmp_path / "data"
    with kafkafs.open(data, writable=True) as directory:
        for topic, settings in (("old", {"retention.ms": "5000"}), ("older", {}), ("new", {})):
            directory.create_topic(topic, partitions=2, configs=settings)
            records = [ProducerRecord(b"v", timestamp=1000)] * 3
            directory[topic, 1].append([b"v"] if topic == "new" else records)
        directory.create_topic("keys", configs={"cleanup.policy": "compact", "segment.ms": "1"})
        for number in range(3):
            directory["keys", 0].append([ProducerRecord(b"v", b"k", timestamp=1000 + 10 * number)])
    (data / "new-0" / f"{7:020}.log.deleted").write_bytes(b"12345")
    segment = (data / "keys-0" / f"{0:020}.log").stat().st_size
    sizes = {topic: (data / f"{topic}-1" / f"{0:020}.log").stat().st_size for topic in LATE}
    when = "-c log.initial.task.delay.ms=600000"
    done = warm_shell(
        f"kafkafs mount --rw --maintain {when} {data} {mountpoint} && kafkafs umount {mountpoint}"
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert sorted(done.stderr.splitlines()) == [
        "kafkafs: the first pass deletes 5 bytes of 1 partition"
        " (leftovers of deletions, compactions and crashes)",
        f"kafkafs: the first pass deletes up to 1 record, {segment} bytes of 1 partition"
        " (compaction, cleanup.policy=compact, kafkafs's configs of the topic)",
        f"kafkafs: the first pass deletes up to 3 records, {sizes['old']} bytes of 1 partition"
        " (retention.ms=5000, kafkafs's configs of the topic)",
        f"kafkafs: the first pass deletes up to 3 records, {sizes['older']} bytes of 1 partition"
        " (retention.ms=604800000, Kafka's default)",
    ]


def test_files_in_the_mount_point_are_hidden(
    warm_shell: Shell, clean: Path, mountpoint: Path
) -> None:
    (mountpoint / "mine").write_text("kept")
    done = warm_shell(
        f"kafkafs mount --check {clean} {mountpoint} && kafkafs mount {clean} {mountpoint}"
        f" && ls {mountpoint}/one && ls {mountpoint}/mine; kafkafs umount {mountpoint}"
        f" && cat {mountpoint}/mine && kafkafs mount --help"
    )
    listed, _, rest = done.stdout.partition("kept")
    assert listed == "0\nconfig.properties\n"
    assert "No such file" in done.stderr
    assert "empty directory" not in rest
    assert "Files in it are hidden until it is unmounted." in " ".join(rest.split())


def test_relative_paths(warm_shell: Shell, clean: Path, mountpoint: Path) -> None:
    there = f"cd {clean.parent}; ln -sfn {mountpoint} {mountpoint}.link; "
    done = warm_shell(
        f"{there} kafkafs mount -c kafkafs.prefer.dir={clean.name} {clean.name} {mountpoint}"
        f" && ls {mountpoint}/one"
        f" && cd {mountpoint.parent} && kafkafs umount mnt"
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "0\nconfig.properties\n")


def test_several_directories_options_and_settings(
    warm_shell: Shell, corpus: Corpus, mountpoint: Path
) -> None:
    root = corpus("kafka43-two-dirs")
    done = warm_shell(
        f"kafkafs mount -o isolation=read_uncommitted -c kafkafs.open.files=99"
        f" {root}/dir1,{root}/dir2 {mountpoint} && cat {mountpoint}/.kafkafs/status.json"
        f" && grep open.files {mountpoint}/.kafkafs/config.properties >&2"
    )
    assert (done.returncode, done.stderr) == (0, "kafkafs.open.files=99\n")
    status = json.loads(done.stdout)
    assert status["isolation"] == "read_uncommitted"
    assert [log_dir["path"] for log_dir in status["logDirs"]] == [f"{root}/dir1", f"{root}/dir2"]


@pytest.mark.parametrize("option", ["--rw", "-o writable"])
def test_for_writing(warm_shell: Shell, tmp_path: Path, mountpoint: Path, option: str) -> None:
    data = tmp_path / "data"
    done = warm_shell(
        f"kafkafs topic create {data} t && kafkafs mount {option} -o key_separator=: {data}"
        f" {mountpoint} && echo a:1 >> {mountpoint}/t/0/append && mkdir {mountpoint}/u"
        f" && kafkafs umount {mountpoint} && kafkafs cat {data} t/0/keys t/0/values u/0/values"
    )
    assert (done.returncode, done.stdout.splitlines()[-2:]) == (0, ["a", "1"]), done.stderr
    assert (data / ".kafka_cleanshutdown").exists()


@contextmanager
def in_foreground(
    programs: Path,
    environment: Mapping[str, str],
    log_dir: Path,
    mountpoint: Path,
    *before: str,
) -> Iterator[subprocess.Popen[str]]:
    """Yields a mount once its log says that it answers: the kernel lists a mount earlier."""
    kafkafs = [programs / "kafkafs", "mount", "--foreground", log_dir, mountpoint]
    with subprocess.Popen(
        [*before, *map(str, kafkafs)],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == f"kafkafs: INFO: {mountpoint} is mounted\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_the_foreground_until_it_is_told_to_end(
    programs: Path,
    environment: Mapping[str, str],
    clean: Path,
    mountpoint: Path,
    number: signal.Signals,
) -> None:
    with in_foreground(programs, environment, clean, mountpoint) as process:
        assert "orders" in os.listdir(mountpoint)
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert os.listdir(mountpoint) == []


def test_nohup(
    programs: Path, environment: Mapping[str, str], clean: Path, mountpoint: Path
) -> None:
    with in_foreground(programs, environment, clean, mountpoint, "nohup") as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
        assert process.stderr is not None
        assert process.stderr.read() == "kafkafs: INFO: SIGTERM: unmounting\n"


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        ("{clean} {tmp}/nowhere", 1, "{tmp}/nowhere: no such directory; create it first"),
        ("{tmp}/nowhere {mnt}", 1, "{tmp}/nowhere: no such directory"),
        ("{tmp} {mnt}", 1, "{tmp}: not a Kafka log directory: "),
        ("{clean} {clean}/one-0", 1, "{clean}/one-0: inside the log directory {clean}; mount "),
        ("-o bogus {clean} {mnt}", 2, "bogus: no such mount option; there are isolation=, "),
        ("--rw -o key_separator= {clean} {mnt}", 2, "key_separator: needs a text without commas"),
        ("-o writable=1 {clean} {mnt}", 2, "writable: takes no value"),
        ("-o isolation=none {clean} {mnt}", 2, "isolation: must be read_committed or read_unco"),
        ("-c retention.mz=1 {clean} {mnt}", 2, "retention.mz: no such config"),
    ],
)
def test_what_is_in_the_way(
    warm_shell: Shell, clean: Path, mountpoint: Path, arguments: str, code: int, line: str
) -> None:
    """One line reports it, even if only the daemon detects it; --check reports the same."""
    names = {"clean": clean, "tmp": mountpoint.parent, "mnt": mountpoint}
    for option in ("", "--check "):
        done = warm_shell(f"kafkafs mount {option}{arguments.format(**names)}")
        assert done.stdout == ""
        assert done.stderr.startswith(f"kafkafs: {line.format(**names)}")
        assert done.stderr.count("\n") == 1
        assert done.returncode == code
    assert not os.path.ismount(mountpoint)


def test_check_mounts_nothing(warm_shell: Shell, clean: Path, mountpoint: Path) -> None:
    done = warm_shell(f"kafkafs mount --check {clean} {mountpoint}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not os.path.ismount(mountpoint)


def test_unmounting_what_is_not_mounted(warm_shell: Shell, clean: Path, mountpoint: Path) -> None:
    done = warm_shell(
        f"kafkafs mount {clean} {mountpoint} && kafkafs umount {mountpoint.parent} {mountpoint}"
    )
    assert done.returncode == 1
    assert done.stderr == f"kafkafs: {mountpoint.parent}: no kafkafs is mounted there\n"
    assert not os.path.ismount(mountpoint)


def test_unmounting_what_a_dead_daemon_left(
    warm_shell: Shell, programs: Path, environment: Mapping[str, str], clean: Path, mountpoint: Path
) -> None:
    with in_foreground(programs, environment, clean, mountpoint) as process:
        process.kill()
    while os.path.exists(mountpoint):
        pass  # the kernel caches attributes for half a second
    checked = warm_shell(f"kafkafs mount --check {clean} {mountpoint}")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert os.path.ismount(mountpoint) or not os.path.exists(mountpoint)  # still mounted
    done = warm_shell(f"kafkafs umount {mountpoint}")
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(mountpoint) == []


def test_mounting_over_what_a_dead_daemon_left(
    warm_shell: Shell, programs: Path, environment: Mapping[str, str], clean: Path, mountpoint: Path
) -> None:
    with in_foreground(programs, environment, clean, mountpoint) as process:
        process.kill()
    again = warm_shell(f"kafkafs mount {clean} {mountpoint}")
    assert (again.returncode, again.stderr) == (0, "")
    assert "orders" in os.listdir(mountpoint)
    done = warm_shell(f"kafkafs umount {mountpoint}")
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(mountpoint) == []


def with_programs_in(directory: str, programs: Path, scratch: Path, script: str) -> list[str]:
    """Returns a command that runs a script as root would at boot, in its own mount namespace:
    `directory` also contains our programs, and all mounts vanish when the script exits."""
    scratch.mkdir()
    shadow = f"mount -t overlay overlay -o lowerdir={programs}:{directory} {directory}"
    script = f"mount -t tmpfs none {scratch} && {shadow} && cd / && {script}"
    return ["unshare", "--mount", "--propagation", "private", "bash", "-ec", script]


@pytest.mark.parametrize(
    ("kind", "directory"), [("kafkafs", "/usr/sbin"), ("fuse.kafkafs", "/usr/local/bin")]
)
def test_a_line_of_fstab(
    programs: Path, textbook: Path, mountpoint: Path, kind: str, directory: str
) -> None:
    fstab = mountpoint.parent / "fstab"
    options = "ro,nofail,noauto,user,_netdev,x-systemd.automount,isolation=read_uncommitted"
    fstab.write_text(f"{textbook} {mountpoint} {kind} {options} 0 0\n")
    script = (
        f"mount -T {fstab} {mountpoint}; findmnt -no FSTYPE,SOURCE {mountpoint};"
        f" cat {mountpoint}/textbook/0/offset/600; umount {mountpoint}; ls -A {mountpoint}"
    )
    scratch = mountpoint.parent / "scratch"
    done = subprocess.run(
        with_programs_in(directory, programs, scratch, script),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, rest = done.stdout.split("\n", 1)
    assert first.split() == ["fuse.kafkafs", str(textbook)]
    assert rest.startswith('{"order":600,')


def test_mount_says_why_it_cannot(programs: Path, textbook: Path, mountpoint: Path) -> None:
    script = (
        f"for options in bogus isolation=none ro; do mount -t kafkafs -o $options"
        f" {mountpoint.parent} {mountpoint} || echo $?; done;"
        f" mount -s -f -t kafkafs -o bogus {textbook} {mountpoint}; echo $?"
    )
    scratch = mountpoint.parent / "scratch"
    done = subprocess.run(
        with_programs_in("/usr/sbin", programs, scratch, script),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.stdout.split() == ["1", "1", "32", "0"]
    assert [line.split(";")[0] for line in done.stderr.splitlines()] == [
        "kafkafs: bogus: no such mount option",
        "kafkafs: isolation: must be read_committed or read_uncommitted",
        f"kafkafs: {mountpoint.parent}: not a Kafka log directory: it has neither meta.properties"
        " nor a directory <topic>-<partition> with a log",
    ]
