"""Fixtures with a real broker. Everything under tests/broker is marked so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.broker.driver import Driver
from tests.broker.kafka import Broker


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever stands in this directory needs Java, and the seconds in which it starts."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.broker)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that runs for the whole session; tests take topics of their own."""
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
    """`start_broker(properties, log_dirs)` is a broker of the test's own, to stop or to kill."""
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
    """`start_driver(broker)` is a client of the test's own."""
    started: list[Driver] = []

    def start(broker: Broker) -> Driver:
        driver = Driver(broker.bootstrap, tmp_path / f"driver-{len(started)}.log")
        started.append(driver)
        return driver

    yield start
    for driver in started:
        driver.close()
