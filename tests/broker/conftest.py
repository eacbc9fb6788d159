"""Fixtures with a real broker. All tests under tests/broker are marked `broker`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.answers import READ_COMMITTED, READ_UNCOMMITTED
from tests.broker.driver import Driver
from tests.broker.kafka import Broker
from tests.broker.readers import (
    EngineReader,
    MountReader,
    Reader,
    locks,
    mounted,
    writable_files,
)
from tests.waiting import wait_until

LEVELS = (READ_COMMITTED, READ_UNCOMMITTED)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests in this directory, which need Java and the seconds in which it starts."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.broker)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that runs for the whole session; each test uses its own topics."""
    shared = Broker(tmp_path_factory.mktemp("broker"))
    shared.start()
    yield shared
    shared.close()


@pytest.fixture(scope="session")
def driver(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Kafka's client at the shared broker."""
    client = Driver(broker.bootstrap, tmp_path_factory.mktemp("driver") / "driver.log")
    yield client
    client.close()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """`start_broker(properties, log_dirs)` starts a broker for one test."""
    started: list[Broker] = []

    def start(
        properties: Mapping[str, str] | None = None, log_dirs: Sequence[Path] | None = None
    ) -> Broker:
        broker = Broker(tmp_path / f"broker-{len(started)}", properties, log_dirs)
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        broker.close()


@pytest.fixture
def start_driver(tmp_path: Path) -> Iterator[Callable[[Broker], Driver]]:
    """`start_driver(broker)` starts a client for one test."""
    started: list[Driver] = []

    def start(broker: Broker) -> Driver:
        driver = Driver(broker.bootstrap, tmp_path / f"driver-{len(started)}.log")
        started.append(driver)
        return driver

    yield start
    for driver in started:
        driver.close()


@pytest.fixture(scope="session")
def engine_readers(broker: Broker) -> dict[str, Reader]:
    """An engine on the shared broker's directory for each isolation level."""
    return {level: EngineReader(broker.log_dirs, level) for level in LEVELS}


@pytest.fixture(scope="session")
def mount_readers(
    broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, MountReader]]:
    """A mount of the shared broker's directory for each isolation level.

    At the end of the session, checks which files the daemons hold open and which locks they hold.
    """
    points = {level: tmp_path_factory.mktemp("live") / level for level in LEVELS}
    with ExitStack() as stack:
        daemons = [
            stack.enter_context(mounted(broker.log_dirs, point, f"isolation={level}"))
            for level, point in points.items()
        ]
        yield {level: MountReader(point) for level, point in points.items()}
        for daemon in daemons:
            assert writable_files(daemon, broker.log_dir) == []
            assert locks(daemon) == []


@pytest.fixture(params=["engine", "mount"])
def readers(request: pytest.FixtureRequest) -> dict[str, Reader]:
    """Readers by isolation level: first the engine itself, then mounts."""
    found: dict[str, Reader] = request.getfixturevalue(f"{request.param}_readers")
    return found


@pytest.fixture
def reader(readers: dict[str, Reader]) -> Reader:
    """A read_committed reader."""
    return readers[READ_COMMITTED]


@pytest.fixture
def engine_reader(broker: Broker) -> EngineReader:
    """A reader whose views can be held while the directory changes."""
    return EngineReader(broker.log_dirs, READ_COMMITTED)


@pytest.fixture
def topic(broker: Broker, driver: Driver, request: pytest.FixtureRequest) -> Callable[..., str]:
    """`topic(configs)` creates a topic named after the test, with `suffix`, and returns its name
    once its directories exist."""

    def create(
        configs: dict[str, str] | None = None, partitions: int = 1, *, suffix: str = ""
    ) -> str:
        name: str = request.node.name.replace("[", ".").replace("]", "") + suffix
        driver.create_topic(name, partitions, configs)
        paths = [broker.log_dir / f"{name}-{partition}" for partition in range(partitions)]
        wait_until(lambda: all(path.is_dir() for path in paths))
        return name

    return create
