"""`kafkafs restore` into a running broker, killed at chosen points and started again."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import kafkafs
from kafkafs.cli.main import cli
from kafkafs.restore import resuming
from kafkafs.restore.restoring import _largest_batch
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_manager import LogManager
from tests.broker.driver import Driver, Message
from tests.broker.jvm import installation, tools
from tests.broker.kafka import Broker
from tests.group_records import commit
from tests.waiting import wait_until

RECORDS = 6000
STARTED_MS = 1_700_000_000_000
CONFIGS = {"retention.ms": "-1", "segment.bytes": "10485760"}

#: Runs the program, which sends a signal to a process, its own by default, at the n-th call of a
#: method, before or after the call.
KILLED = """
import os, signal, sys
from kafkafs.cli.main import cli
from kafkafs.restore import producing, resuming, restoring, state

kind, method, calls, before, *rest = eval(sys.argv[1])
number, pid = rest or (signal.SIGKILL, os.getpid())
producing.SAVE_SECONDS, resuming.REST_SECONDS = 0.0, 0.1
producing.STALL_SECONDS = 2.0
producing._POLL_RECORDS = 100
of = {"RecordProducer": producing, "Restore": restoring, "RestoreStateFile": state}[kind]
target = getattr(of, kind)
if method == "write_atomically":
    target = state.WritableDirFd
usual = getattr(target, method)

def dies(*arguments, **named):
    global calls
    calls -= 1
    if before and not calls:
        os.kill(pid or os.getpid(), number)
    result = usual(*arguments, **named)
    if not calls:
        os.kill(pid or os.getpid(), number)
    return result

setattr(target, method, dies)
cli(sys.argv[2:])
"""
#: The class, the method, the number of the call, and whether it is killed before the call.
POINTS = [
    ("RestoreStateFile", "write_atomically", 1, True),  # topics exist, no state
    ("RestoreStateFile", "write_atomically", 1, False),  # no record written
    ("RecordProducer", "_poll", 20, False),  # in the middle of a partition
    ("RestoreStateFile", "write_atomically", 3, True),  # the table is ahead of the state
    ("RecordProducer", "finish", 2, True),
    ("RecordProducer", "finish", 2, False),  # all is acknowledged, but not saved
    ("Restore", "_complete", 1, False),
]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(resuming, "REST_SECONDS", 0.1)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of the test's own in the shared broker."""
    return f"restored-{abs(hash(request.node.name))}-{time.time_ns()}"


def record(number: int) -> kafkafs.ProducerRecord:
    headers: list[tuple[str, bytes | None]] = [("a", b"%d" % number), ("a", None), ("ü", b"")]
    return kafkafs.ProducerRecord(
        None if number % 7 == 1 else b"" if number % 7 == 2 else b"value %d " % number * 20,
        key=None if number % 5 == 1 else b"" if number % 5 == 2 else b"key %d" % (number % 50),
        timestamp=STARTED_MS + number * 1000,
        headers=headers if number % 3 == 0 else [],
    )


def abort(made: kafkafs.WritableLogDirectories, number: int) -> None:
    with suppress(ZeroDivisionError), made.transaction() as transaction:
        transaction.append("orders", number, [record(9)])
        raise ZeroDivisionError


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Log directories with two partitions, aborted and committed transactions, and groups."""
    path = tmp_path_factory.mktemp("source") / "logs"
    with kafkafs.open(path, writable=True) as made:
        made.create_topic("orders", 2, CONFIGS)
        for number in range(2):
            for first in range(0, RECORDS, 500):
                made["orders", number].append(map(record, range(first, first + 500)))
                abort(made, number)
                with made.transaction() as transaction:
                    transaction.append("orders", number, [record(10)])
        made.create_topic("__consumer_offsets", 1)
    commits = [commit("readers", "orders", 0, 505), commit("readers", "orders", 1, 3)]
    with LogManager(str(path)) as manager:
        columns = RecordColumns.from_records(commits)
        manager.writer("__consumer_offsets", 0).append_records(columns, BatchPlan())
    return path


PAGE = Path(kafkafs.__file__).parent / "cli" / "README.md"

Fields = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


def records(path: Path, topic: str, number: int) -> Iterator[tuple[int, Fields]]:
    """Yields the committed records of a partition by offset."""
    with kafkafs.open(path) as directory:
        for each in directory[topic, number].records():
            yield each.offset, (each.key, each.value, each.timestamp, each.headers)


def restore(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["restore", *map(str, arguments)])


def check(source: Path, broker: Broker, topic: str) -> None:
    for number in range(2):
        old = [fields for _, fields in records(source, "orders", number)]
        new = list(records(broker.log_dir, topic, number))
        assert len(old) == RECORDS + RECORDS // 500
        assert new == list(enumerate(old))


def test_killed_again_and_again(
    source: Path, broker: Broker, driver: Driver, topic: str, tmp_path: Path
) -> None:
    """Each run continues where the one before was killed."""
    line = [source, "--to", broker.bootstrap, "orders", "--rename", f"orders={topic}"]
    for point in POINTS:
        arguments = [sys.executable, "-c", KILLED, repr(point), "restore", *map(str, line)]
        killed = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, (point, killed.stdout, killed.stderr)
    done = restore(*line, "--json")
    assert done.exit_code == 0, done.output
    check(source, broker, topic)
    rows = [json.loads(row) for row in done.stdout.splitlines()]
    assert [(row["partition"], row["records"], row["newFirstOffset"]) for row in rows] == [
        (number, RECORDS + RECORDS // 500, 0) for number in range(2)
    ]
    again = restore(*line)
    assert again.exit_code == 0
    check(source, broker, topic)
    (table,) = tmp_path.glob("state/kafkafs/*.offsets")
    for number in range(2):
        assert offsets_in(table, number) == {
            old: new for new, (old, _) in enumerate(records(source, "orders", number))
        }


def offsets_in(table: Path, number: int) -> dict[int, int]:
    """Returns new offsets by old ones, each of which is there once."""
    found: dict[int, int] = {}
    for line in table.read_text().splitlines()[1:]:
        _, partition, old, _, new, count = line.split("\t")
        if int(partition) == number:
            for index in range(int(count)):
                assert found.setdefault(int(old) + index, int(new) + index) == int(new) + index
    return found


def interrupted(point: tuple[object, ...], line: list[object]) -> subprocess.CompletedProcess[str]:
    """Runs a restore until it ends because of what happens at a point, as in KILLED."""
    arguments = [sys.executable, "-c", KILLED, repr(point), "restore", *map(str, line)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)


def test_ctrl_c(source: Path, broker: Broker, driver: Driver, topic: str) -> None:
    line = [source, "--to", broker.bootstrap, "orders", "--rename", f"orders={topic}"]
    for calls in (20, 40):
        ended = interrupted(("RecordProducer", "_poll", calls, False, int(signal.SIGINT), 0), line)
        assert (ended.returncode, ended.stdout) == (130, ""), ended
        assert "Traceback" not in ended.stderr
    assert restore(*line).exit_code == 0
    check(source, broker, topic)


def test_a_cluster_that_no_longer_answers(
    source: Path, start_broker: Callable[..., Broker], topic: str
) -> None:
    """The command does not wait for ever; later, it continues."""
    broker = start_broker()
    line = [source, "--to", broker.bootstrap, "orders", "--rename", f"orders={topic}"]
    point = ("RecordProducer", "finish", 1, True, int(signal.SIGSTOP), broker.pid)
    try:
        ended = interrupted(point, line)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert "orders-0: the cluster has acknowledged no record for 2 seconds" in ended.stderr
    # The controller, too, finds that the broker was silent, and fences it for a moment.
    wait_until(lambda: restore(*line, "--dry-run").exit_code == 0)
    again = restore(*line)
    assert again.exit_code == 0, again.stderr
    check(source, broker, topic)


def test_groups_continue_at_the_same_records(
    source: Path, broker: Broker, driver: Driver, topic: str
) -> None:
    line = [source, "--to", broker.bootstrap, "orders", "--rename", f"orders={topic}"]
    done = restore(*line, "--groups", "--json")
    assert done.exit_code == 0, done.output
    commits = [json.loads(row) for row in done.stdout.splitlines()][2:]
    assert [(row["partition"], row["offset"], row["newOffset"]) for row in commits] == [
        (0, 505, 502),  # after 500 records, an aborted one, its marker, a committed one, a marker
        (1, 3, 3),
    ]
    with kafkafs.open(broker.log_dir) as there:
        found = there.groups("readers")["readers"].offsets
    assert {each.partition: each.offset for each in found if each.topic == topic} == {0: 502, 1: 3}
    again = restore(*line, "--groups", "--json")
    assert len(again.stdout.splitlines()) == 2  # no offset is committed twice


def test_topics_are_created_with_their_configs(
    source: Path, broker: Broker, driver: Driver, topic: str
) -> None:
    until = STARTED_MS + 5000
    line = [source, "--to", broker.bootstrap, "orders", "--rename", f"orders={topic}"]
    done = restore(*line, "--until", until, "--from", STARTED_MS + 2000)
    assert done.exit_code == 0, done.output
    with kafkafs.open(broker.log_dir) as there:
        assert there.topics[topic] == [0, 1]
        stamps = [each.timestamp for each in there[topic, 1].records()]
        (configs,) = (row["configs"] for row in there.cluster().topics if row["topic"] == topic)
    assert stamps == [STARTED_MS + number * 1000 for number in (2, 3, 4)]
    assert configs == CONFIGS


def test_what_is_refused_before_anything_is_written(
    source: Path, broker: Broker, driver: Driver, topic: str, tmp_path: Path
) -> None:
    driver.create_topic(topic, 3)
    full = f"{topic}-full"
    line = [source, "--to", broker.bootstrap, "--rename"]
    first = restore(*line, f"orders={full}", "--until", STARTED_MS + 5000)
    assert first.exit_code == 0, first.output
    ends = offsets(broker, full)

    def refused(*arguments: object) -> str:
        done = restore(*arguments)
        assert done.exit_code == 1
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        return done.stderr

    assert "has 3 partitions instead of 2" in refused(*line, f"orders={topic}")
    assert "is not empty, and no restore has written it" in refused(*line, f"orders={full}")
    assert "not a legal name" in refused(*line, "orders=a/b")
    assert "no topic ordres; did you mean orders?" in refused(*line[:-1], "ordres")
    assert "cannot reach 127.0.0.1:1:" in refused(source, "--to", "127.0.0.1:1")
    assert "Kafka's own topic" in refused(*line[:-1], "__consumer_offsets")
    assert "Kafka's own topic, which no other may be" in refused(
        *line, "orders=__transaction_state"
    )
    keyed, young = f"{topic}-keyed", f"{topic}-young"
    driver.create_topic(keyed, 2, {"cleanup.policy": "compact"})
    assert "a record has no key, and cleanup.policy is compact" in refused(*line, f"orders={keyed}")
    driver.create_topic(young, 2, {"message.timestamp.before.max.ms": "1000"})
    assert "before message.timestamp.before.max.ms" in refused(*line, f"orders={young}")
    assert offsets(broker, keyed) == offsets(broker, young) == [0, 0]
    encrypted = tmp_path / "encrypted.properties"
    encrypted.write_text("security.protocol=ssl\n")
    assert f"cannot reach {broker.bootstrap}" in refused(*line[:-1], "--command-config", encrypted)
    configs = tmp_path / "client.properties"
    configs.write_text("retention=x\n")
    assert 'No such configuration property: "retention"' in refused(
        *line[:-1], "--command-config", configs
    )
    state = [*line[:-1], "orders", "--state", tmp_path / "state.json"]
    other = f"{topic}-other"
    assert restore(*state, "--rename", f"orders={other}", "--until", STARTED_MS).exit_code == 0
    assert f"was restored as {other}" in refused(*state, "--rename", f"orders={topic}-third")
    assert offsets(broker, full) == ends


def offsets(broker: Broker, topic: str) -> list[int]:
    with kafkafs.open(broker.log_dir) as there:
        return [there[topic, number].end_offset for number in there.topics[topic]]


def test_records_of_another_program_are_not_taken_for_restored_ones(
    source: Path, broker: Broker, driver: Driver, topic: str
) -> None:
    line = [source, "--to", broker.bootstrap, "orders", "--rename", f"orders={topic}"]
    point = repr(("RestoreStateFile", "write_atomically", 1, False))
    arguments = [sys.executable, "-c", KILLED, point, "restore", *map(str, line)]
    killed = subprocess.run(arguments, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    driver.produce(topic, [Message(b"key", b"value")], partition=1)
    ends = offsets(broker, topic)
    done = restore(*line)
    assert done.exit_code == 1
    assert "the record at offset 0 is not the one that this restore would have written" in (
        done.stderr
    )
    assert offsets(broker, topic)[1] == ends[1] == 1


def test_a_dry_run_counts_and_finds_obstacles(
    source: Path, broker: Broker, driver: Driver, topic: str
) -> None:
    driver.create_topic(
        topic,
        2,
        {
            "retention.ms": "1000",
            "max.message.bytes": "100",
            "message.timestamp.before.max.ms": "1000",
        },
    )
    line = [source, "--to", broker.bootstrap, "orders", "--rename", f"orders={topic}"]
    done = restore(*line, "--dry-run", "--json")
    assert done.exit_code == 1
    rows = [json.loads(row) for row in done.stdout.splitlines()]
    assert [row["records"] for row in rows[:2]] == [RECORDS + RECORDS // 500] * 2
    size = sum(len(f[0] or b"") + len(f[1] or b"") for _, f in records(source, "orders", 0))
    assert rows[0]["bytes"] == size
    texts = [row["obstacle"] for row in rows[2:]]
    for text, what in zip(
        texts, ("retention.ms", "timestamp.before.max.ms", "max.message.bytes"), strict=True
    ):
        assert what in text
    assert offsets(broker, topic) == [0, 0]

    stamped = f"{topic}-stamped"
    driver.create_topic(stamped, 2, {"message.timestamp.type": "LogAppendTime"})
    line[-1] = f"orders={stamped}"
    done = restore(*line, "--dry-run", "--until", STARTED_MS + 1000)
    assert done.exit_code == 0
    assert "LogAppendTime, so the broker replaces all timestamps" in done.stdout
    assert restore(*line, "--until", STARTED_MS + 1000).exit_code == 0
    assert offsets(broker, stamped) == [1, 1]


def test_what_the_cluster_will_delete_is_said_before(
    source: Path, start_broker: Callable[..., Broker], topic: str, tmp_path: Path
) -> None:
    """By the configs of the broker, whose retention is in hours as usual, if the topic has none."""
    kept = {"log.retention.ms": "", "log.retention.hours": "2", "log.retention.bytes": "1000"}
    broker = start_broker(kept)
    own = tmp_path / "own"
    now = time.time_ns() // 1_000_000
    with kafkafs.open(own, writable=True) as made:
        for name, configs in (("plain", {}), ("kept", CONFIGS | {"retention.bytes": "-1"})):
            made.create_topic(name, 1, configs)
            made[name, 0].append(
                [kafkafs.ProducerRecord(bytes(2000), timestamp=now - 3 * 3_600_000)]
            )
    for arguments in (["--dry-run"], []):
        done = restore(own, "--to", broker.bootstrap, *arguments)
        assert done.exit_code == 0, done.output
        lines = (done.stdout + done.stderr).splitlines()
        said = [row for row in lines if "the broker deletes such" in row]
        assert len(said) == 2
        assert "plain: a record is of" in said[0]
        assert "older than retention.ms" in said[0]
        assert "a partition has" in said[1]
        assert "more than retention.bytes" in said[1]


def test_a_quota_only_slows_it_down(source: Path, start_broker: Callable[..., Broker]) -> None:
    broker = start_broker()
    limit = ["--alter", "--add-config", "producer_byte_rate=100000"]
    of = ["--entity-type", "clients", "--entity-name", "kafkafs"]
    arguments = ["--bootstrap-server", broker.bootstrap, *limit, *of]
    assert tools(installation()).run("kafka.admin.ConfigCommand", arguments).returncode == 0
    started = time.monotonic()
    line = [source, "--to", broker.bootstrap, "orders", "--rename", "orders=slow"]
    assert restore(*line).exit_code == 0
    assert time.monotonic() - started > 2  # else there was no quota
    check(source, broker, "slow")


def test_the_lines_of_the_page_run(source: Path, broker: Broker, driver: Driver) -> None:
    found = re.search(
        r"^## Restoring into a cluster\n\n```bash\n(.+?)```", PAGE.read_text(), re.M | re.S
    )
    assert found is not None
    for line in found[1].splitlines():
        program, verb, *words = shlex.split(line, comments=True)
        assert (program, verb) == ("kafkafs", "restore")
        places = {"/backup": source, "localhost:9092": broker.bootstrap}
        done = restore(*(places.get(word, word) for word in words))
        assert done.exit_code == 0, done.output
    with kafkafs.open(broker.log_dir) as there:
        assert {"orders", "orders-old"} <= set(there.topics)


def test_batches_larger_than_a_segment(
    source: Path, broker: Broker, driver: Driver, topic: str
) -> None:
    """They are refused for good, and librdkafka raises that from any of its calls."""
    driver.create_topic(topic, 2, {"internal.segment.bytes": "20000"})
    line = [source, "--to", broker.bootstrap, "orders", "--rename", f"orders={topic}"]
    done = restore(*line)
    assert done.exit_code == 1
    (error,) = [row for row in done.stderr.splitlines() if "offsets are in" not in row]
    assert error.startswith("kafkafs: orders-0: the cluster has not taken a record: ")
    assert "larger than configured server segment size" in error
    assert "the same command continues" in error


def test_a_batch_fits_in_a_segment() -> None:
    assert _largest_batch({"max.message.bytes": "1048588", "segment.bytes": "1000000"}) == 1_000_000
    assert _largest_batch({"max.message.bytes": "1048588"}) == 1_048_588
