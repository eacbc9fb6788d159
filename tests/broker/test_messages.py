"""Random messages are decoded as Kafka's generated classes print them."""

from __future__ import annotations

import base64
import subprocess
from types import ModuleType

import pytest

from kafkafs.storage.format.messages.message import parse_schemas, to_json
from kafkafs.storage.format.messages.schemas import (
    group_coordinator,
    metadata,
    raft,
    share_coordinator,
    transaction_coordinator,
)
from tests.broker.jvm import installation, java

COMMON = "org.apache.kafka.common.message"
PACKAGES = {
    group_coordinator: "org.apache.kafka.coordinator.group.generated",
    transaction_coordinator: "org.apache.kafka.coordinator.transaction.generated",
    share_coordinator: "org.apache.kafka.coordinator.share.generated",
    metadata: "org.apache.kafka.common.metadata",
    raft: COMMON,
}
#: The fewest messages of each version; how many Kafka's Messages.java generates is random.
LEAST = 5


@pytest.mark.parametrize("module", PACKAGES, ids=lambda module: module.__name__.split(".")[-1])
def test_messages_are_read_as_kafka_prints_them(module: ModuleType) -> None:
    schemas = parse_schemas(module.SCHEMAS)
    package = PACKAGES[module]
    names = [
        f"{COMMON if schema.name.startswith('ConsumerProtocol') else package}.{schema.name}"
        for schema in schemas
    ]
    done = subprocess.run(
        java(installation(), "Messages", "7", log_level="off"),
        input="".join(f"{name}\n" for name in names),
        check=True,
        capture_output=True,
        text=True,
    )
    answers = done.stdout.split("\n\n")
    assert len(answers) == len(schemas) + 1
    for schema, answer in zip(schemas, answers[:-1], strict=True):
        seen = dict.fromkeys(range(schema.versions[0], schema.versions[1] + 1), 0)
        for line in answer.strip().splitlines():
            version, data, expected = line.split(" ", 2)
            message = schema.read(base64.b64decode(data), int(version))
            assert to_json(message) == expected, f"{schema.name}, version {version}"
            seen[int(version)] += 1
        assert min(seen.values()) >= LEAST, (schema.name, seen)
