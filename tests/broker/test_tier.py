"""A broker with remote storage (Kafka's LocalTieredStorage) copies and deletes segments while
kafkafs follows them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from kafkafs.cli.main import cli
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.expire import Expire, ExpiredSegment, expire
from kafkafs.storage.operations.request import PartitionFailed
from kafkafs.storage.operations.revive.request import Revive
from kafkafs.storage.operations.revive.revive import revive
from tests import answers
from tests.answers import READ_COMMITTED, READ_UNCOMMITTED
from tests.broker.driver import Driver
from tests.broker.jvm import VERSION, cache_dir, provide
from tests.broker.kafka import Broker, RevivedBroker, free_listener
from tests.broker.readers import MountReader, mounted, without_epoch
from tests.broker.test_live import check_while, numbers, rows
from tests.broker.test_revive import STILL
from tests.waiting import wait_until

TIERED = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "15000",
    "internal.segment.bytes": "7000",
    "segment.index.bytes": "8192",
}
COUNT = 3_000


def plugin() -> Path:
    """Returns the directory with the jar of LocalTieredStorage, which is among Kafka's tests."""
    home = cache_dir() / f"tier-{VERSION}"
    if not home.is_dir():
        provide(home, _download)
    return home


def _download(target: Path) -> None:
    artifact = f"org.apache.kafka:kafka-storage:{VERSION}:jar:test"
    maven = ["mvn", "-B", "-q", "dependency:copy", f"-Dartifact={artifact}"]
    subprocess.run([*maven, f"-DoutputDirectory={target}"], check=True)


def properties(tier: Path, metadata_partitions: int = 3) -> dict[str, str]:
    """Returns the configs of a broker that copies segments to `tier` as soon as they are rolled."""
    package = "org.apache.kafka.server.log.remote.storage"
    metadata = "rlmm.config.remote.log.metadata.topic"
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": f"{package}.LocalTieredStorage",
        "remote.log.storage.manager.class.path": f"{plugin()}/*",
        "rsm.config.dir": str(tier),
        "rsm.config.delete.enable": "true",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        f"{metadata}.replication.factor": "1",
        f"{metadata}.num.partitions": str(metadata_partitions),
        "remote.log.manager.task.interval.ms": "300",
    }


def test_segments_move_to_remote_storage_while_they_are_read(
    tmp_path: Path,
    start_broker: Callable[..., Broker],
    start_driver: Callable[[Broker], Driver],
) -> None:
    tier = tmp_path / "tier"
    tier.mkdir()
    broker = start_broker(properties(tier))
    driver = start_driver(broker)
    driver.create_topic("t", configs=TIERED)
    wait_until((tier / "kafka-tiered-storage").is_dir)
    engine = Engine(str(broker.log_dir), {"kafkafs.tier": str(tier)})
    log = engine.log("t", 0)
    seen = 0

    def check() -> None:
        nonlocal seen
        found = rows(log.view())
        assert found == list(range(len(found)))
        assert len(found) >= seen
        seen = len(found)

    how = {"count": COUNT, "batch": 7, "value_size": 40, "pause_ms": 2}
    check_while(driver.submit("generate", topic="t", partition=0, **how), check)
    assert seen == COUNT

    def local_bytes() -> int:
        return sum(path.stat().st_size for path in (broker.log_dir / "t-0").glob("*.log"))

    wait_until(lambda: local_bytes() < 30_000)
    check()
    view = log.view()
    assert view.start_offset == 0 < view.local_start_offset
    assert sum(segment.is_remote for segment in view.segments) > 10
    known = without_epoch(driver.records("t"))
    assert numbers(known) == list(range(COUNT))
    with mounted([broker.log_dir], tmp_path / "mnt", f"tier={tier}"):
        reader = MountReader(tmp_path / "mnt")
        assert reader.records("t") == known
        assert (reader.path("t") / "offset" / "1").read_bytes() == known[1].value
    copies = set(tier.glob("*/t-0-*/*.log"))
    driver.call("delete_records", topic="t", partition=0, before=1_000)
    wait_until(lambda: log.view().start_offset == 1_000)
    assert rows(log.view()) == list(range(1_000, COUNT))
    wait_until(lambda: len(copies - set(tier.glob("*/t-0-*/*.log"))) > 4)
    assert rows(log.view()) == list(range(1_000, COUNT))
    assert engine.problems == []
    broker.stop()
    alone = Engine(str(tier)).log("t", 0).view()
    offsets = [o for part in alone.read(isolation=Isolation.READ_COMMITTED) for o in part.offsets]
    assert offsets == list(range(alone.start_offset, alone.end_offset))
    assert alone.start_offset <= 1_000 < alone.end_offset


def test_a_broker_agrees_with_what_kafkafs_deleted(
    corpus: Callable[[str], Path],
    tmp_path: Path,
    start_broker: Callable[..., Broker],
    start_driver: Callable[[Broker], Driver],
) -> None:
    """It starts with the same log start offsets, deletes in remote storage what is below them, and
    nothing that local retention has deleted here."""
    data = Path(shutil.copytree(corpus("tier43"), tmp_path / "data"))
    starts = {("t-none", 0): 525, ("t-many", 0): 300, ("t-many", 1): 0, ("t-lz4", 0): 0}
    with LogManager(str(data / "logs")) as engine:
        for key, start in starts.items():
            if start:
                assert engine.writer(*key).delete_records(start) == start
        engine.background_tasks.finish_deletions(starts.keys())
        (deleted,) = expire(engine, Expire(Selection((("t-lz4", 0),))))
        assert isinstance(deleted, ExpiredSegment)
        assert deleted.base_offset == 201
    broker = start_broker(properties(data / "tier", 2), [data / "logs"])
    driver = start_driver(broker)

    def copies(topic: str, number: int) -> list[int]:
        return sorted(int(p.name[:20]) for p in data.glob(f"tier/*/{topic}-{number}-*/*.log"))

    wait_until(lambda: not copies("t-none", 0) and copies("t-many", 0)[0] == 171)
    for (topic, number), start in starts.items():
        known = answers.records("tier43", topic, number, READ_UNCOMMITTED)
        assert driver.offsets(topic, number).beginning == start
        expected = [record for record in known if record.offset >= start]
        assert driver.records(topic, number, READ_UNCOMMITTED) == expected
    assert copies("t-many", 1)[0] == 0
    assert copies("t-lz4", 0) == [0, 98, 201]


def test_a_new_kafka_from_remote_storage_alone(
    corpus: Callable[[str], Path],
    tmp_path: Path,
    start_driver: Callable[[Broker], Driver],
) -> None:
    """The cluster is lost, and the records that a topic had in remote storage are restored into the
    new one, too."""
    tier = corpus("tier43") / "tier"
    listener = ("127.0.0.1", free_listener())
    rows = list(revive(Engine(str(tier)), Revive(str(tmp_path / "new"), listener=listener)))
    assert not [row for row in rows if isinstance(row, PartitionFailed)]
    broker = RevivedBroker(tmp_path / "new", listener[1], VERSION, STILL)
    try:
        broker.start()
        driver = start_driver(broker)
        for topic, level in (("t-many", READ_COMMITTED), ("t-txn", READ_UNCOMMITTED)):
            known = list(answers.records("tier43", topic, 0, level))
            assert driver.records(topic, 0, level) == known
        arguments = ["restore", "--tier", str(tier), str(corpus("tier43") / "logs"), "t-young"]
        arguments += ["--to", broker.bootstrap, "--rename", "t-young=again"]
        done = CliRunner().invoke(cli, [*arguments, "--state", str(tmp_path / "state.json")])
        assert done.exit_code == 0, done.output
        again = without_epoch(driver.records("again"))
        assert again == without_epoch(list(answers.records("tier43", "t-young", 0)))
    finally:
        broker.close()
