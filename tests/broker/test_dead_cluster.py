"""Groups and the cluster, as kafkafs reads them from a directory, and as a broker that is started
on a copy of it, or on what `kafkafs revive` makes of it, answers Kafka's own tools.

The test of members comes first: once their groups are loaded, the members that no longer run have
a session timeout of 45 s.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.cluster import ClusterSubject, DescribeCluster, describe_cluster
from kafkafs.storage.operations.groups import (
    GroupOffset,
    ListGroups,
    ListMembers,
    list_groups,
    list_members,
)
from kafkafs.storage.operations.revive.request import Revive
from kafkafs.storage.operations.revive.revive import revive
from tests.broker.jvm import VERSION, installation, tools
from tests.broker.kafka import Broker, RevivedBroker, free_listener
from tests.conftest import Corpora
from tests.waiting import wait_until

NAME = "groups43"
#: No transaction is aborted meanwhile.
STILL = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    "log.cleaner.enable": "false",
}
PROPERTIES = {
    **STILL,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.retention.minutes": "10000000",
}
#: Makes a broker log which partitions its coordinators have loaded; until then Kafka's tools get
#: no groups, and no error.
LOGS_LOADING = "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.coordinator.common.runtime=info"
LOADED = re.compile(r"Finished loading of metadata from (\S+-\d+) ")
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
#: Lines of kafka-groups, kafka-consumer-groups and kafka-share-groups.
TYPE = re.compile(r"(.+?) +(Classic|Consumer|Share|Streams)(?: +\w+)? *")
STATE = re.compile(r"(.+?) +127\.0\.0\.1:\d+ +\(\d+\) .* (\w+) +\d+ *")
MEMBER = re.compile(r"(\S+) +(\S+) +.*/127\.0\.0\.1 +(\S+) +\d+ .*")
OFFSET = re.compile(r"(.+?) +(\S+) +(\d+) +(\d+|-) +(\d+|-) +(-?\d+|-) +\S+ +\S+ +\S+ *")
SHARE_OFFSET = re.compile(r"(.+?) +(\S+) +(\d+) +(\d+) +(-?\d+) *")
PATTERN = re.compile(r"resourceType=(\w+), name=(.*), patternType=(\w+)\)")
ENTRY = re.compile(r"\(principal=(.*), host=(.*), operation=(\w+), permissionType=(\w+)\)")
CONFIGS = re.compile(r"(?:Dynamic|Default) configs for (.*) are:")
QUOTA = re.compile(r"Quota configs for (.*) are (.*)")
SCRAM = re.compile(r"SCRAM credential configs for user-principal '(.*)' are (.*)")


@pytest.fixture(scope="module")
def original(corpora: Corpora) -> Path:
    """The directory that the broker left."""
    return corpora.path(NAME)


@pytest.fixture(scope="module", params=["copy", "revived"])
def broker(
    original: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Broker]:
    """A broker on a copy, or on a revived directory, which needs none of the old one's configs. It
    has loaded all groups."""
    scratch = tmp_path_factory.mktemp("dead")
    log_dir = scratch / NAME
    if request.param == "copy":
        subprocess.run(["cp", "-a", "--sparse=always", original, scratch], check=True)
        started = Broker(scratch / "broker", PROPERTIES, [log_dir], jvm_options=[LOGS_LOADING])
    else:
        revived, port = scratch / "revived", free_listener()
        request_of_new = Revive(str(revived), listener=("127.0.0.1", port))
        list(revive(Engine(str(original)), request_of_new))
        started = RevivedBroker(revived, port, VERSION, STILL, [LOGS_LOADING])
        log_dir = revived / "data"
    internal = ("__consumer_offsets-*", "__share_group_state-*")
    coordinated = {path.name for pattern in internal for path in log_dir.glob(pattern)}
    started.start()
    try:
        wait_until(
            lambda: coordinated <= set(LOADED.findall(started.output.read_text(errors="replace"))),
            f"loaded: {coordinated}",
        )
        yield started
    finally:
        started.close()


@pytest.fixture(scope="module")
def ask(broker: Broker) -> Callable[..., list[str]]:
    """`ask(tool, argument…)` returns the lines that one of Kafka's tools prints about the
    broker."""

    def run(tool: str, *arguments: str) -> list[str]:
        given = ["--bootstrap-server", broker.bootstrap, *arguments]
        done = tools(installation()).run(tool, given)
        assert done.returncode == 0, (done.stdout + done.stderr).decode()
        return done.stdout.decode().splitlines()

    return run


def described(log_dir: Path, subject: ClusterSubject) -> list[dict[str, Any]]:
    """Returns what kafkafs says of a subject, as JSON."""
    return [
        row.as_json() for row in describe_cluster(Engine(str(log_dir)), DescribeCluster(subject))
    ]


def rows_of(pattern: re.Pattern[str], lines: Iterable[str]) -> set[tuple[str, ...]]:
    """Returns the groups of the lines that match."""
    return {match.groups() for line in lines if (match := pattern.fullmatch(line))}


def test_states_types_and_members(original: Path, ask: Callable[..., list[str]]) -> None:
    engine = Engine(str(original))
    rows = list_groups(engine, ListGroups())
    groups = {row.group for row in rows if isinstance(row, GroupOffset)}
    types = rows_of(TYPE, ask("org.apache.kafka.tools.GroupsCommand", "--list"))
    assert types == {(group.name, str(group.type)) for group in groups}
    states = rows_of(STATE, ask(GROUPS, "--describe", "--all-groups", "--state"))
    assert states == {(group.name, str(group.state)) for group in groups if group.type != "Share"}
    members: set[tuple[str, ...]] = set()
    for tool in (GROUPS, SHARE_GROUPS):
        members |= rows_of(MEMBER, ask(tool, "--describe", "--all-groups", "--members"))
    found = [row.as_json() for row in list_members(engine, ListMembers())]
    assert members == {(row["group"], row["memberId"], row["clientId"]) for row in found}


def test_committed_offsets(original: Path, ask: Callable[..., list[str]]) -> None:
    expected: dict[bool, set[tuple[str, ...]]] = {False: set(), True: set()}
    for row in list_groups(Engine(str(original)), ListGroups()):
        assert isinstance(row, GroupOffset)
        if row.offset is not None:
            is_share = row.group.type == "Share"
            end = () if is_share else (row.log_end_offset,)
            numbers = (row.partition, row.offset, *end, row.lag)
            expected[is_share].add((row.group.name, str(row.topic), *map(str, numbers)))
    found = rows_of(OFFSET, ask(GROUPS, "--describe", "--all-groups", "--all-topics"))
    assert {row for row in found if row[3] != "-"} == expected[False]
    assert rows_of(SHARE_OFFSET, ask(SHARE_GROUPS, "--describe", "--all-groups")) == expected[True]


def test_topics(original: Path, broker: Broker, ask: Callable[..., list[str]]) -> None:
    """Leaders are those of the running broker: without it there are none."""
    lines = ask("org.apache.kafka.tools.TopicCommand", "--describe")
    found: dict[str, tuple[str, list[tuple[str, ...]]]] = {}
    for line in lines:
        pairs = (part.partition(":") for part in line.strip().split("\t"))
        fields = {name: value.strip() for name, _, value in pairs}
        if "TopicId" in fields:
            found[fields["Topic"]] = (fields["TopicId"], [])
        else:
            names = ("Partition", "Leader", "Replicas", "Isr")
            row = tuple(fields[name] for name in names)
            found[fields["Topic"]][1].append(row)
    assert found == topics(broker.log_dir)
    dead = topics(original)
    assert {name: topic_id for name, (topic_id, _) in dead.items()} == {
        name: topic_id for name, (topic_id, _) in found.items()
    }
    assert {row[1] for _, rows in dead.values() for row in rows} == {"None"}


def topics(log_dir: Path) -> dict[str, tuple[str, list[tuple[str, ...]]]]:
    """Returns each topic's id, and its partitions with leader, replicas and ISR."""
    return {
        topic["topic"]: (
            topic["topicId"],
            [
                (
                    str(each["partition"]),
                    str(each["leader"]),
                    ",".join(map(str, each["replicas"])),
                    ",".join(map(str, each["isr"])),
                )
                for each in topic["partitions"]
            ],
        )
        for topic in described(log_dir, ClusterSubject.TOPICS)
    }


def test_configs(original: Path, ask: Callable[..., list[str]]) -> None:
    found: dict[str, dict[str, str]] = {}
    for kind in ("topics", "brokers", "groups", "client-metrics"):
        configs: dict[str, str] = {}
        for line in ask("kafka.admin.ConfigCommand", "--describe", "--entity-type", kind):
            if resource := CONFIGS.fullmatch(line):
                configs = found.setdefault(resource[1], {})
            elif "=" in line:
                name, value = line.strip().split(" sensitive=")[0].split("=", 1)
                configs[name] = value
    expected = {
        f"{row['resourceType']} {row['resourceName']}"
        if row["resourceName"] is not None
        else "brokers in the cluster": row["configs"]
        for row in described(original, ClusterSubject.CONFIGS)
        if row["configs"]
    }
    found["client-metrics metrics-amber"] = found.pop("client-metric metrics-amber")
    assert {name: configs for name, configs in found.items() if configs} == expected


def test_quotas_and_users(original: Path, ask: Callable[..., list[str]]) -> None:
    quotas: dict[str, dict[str, float]] = {}
    users: dict[str, dict[str, int]] = {}
    for arguments in (
        ("--entity-type", "users"),
        ("--entity-type", "clients"),
        ("--entity-type", "users", "--entity-type", "clients"),
        ("--entity-type", "ips"),
    ):
        for line in ask("kafka.admin.ConfigCommand", "--describe", *arguments):
            if quota := QUOTA.fullmatch(line):
                pairs = (pair.split("=") for pair in quota[2].split(", "))
                quotas[quota[1]] = {name: float(value) for name, value in pairs}
            elif user := SCRAM.fullmatch(line):
                credentials = (each.split("=iterations=") for each in user[2].split(", "))
                users[user[1]] = {name: int(iterations) for name, iterations in credentials}
    assert quotas == {
        quota_entity(row["entity"]): row["quotas"]
        for row in described(original, ClusterSubject.QUOTAS)
    }
    assert users == {
        row["user"]: {each["mechanism"]: each["iterations"] for each in row["credentials"]}
        for row in described(original, ClusterSubject.USERS)
    }


def quota_entity(entity: dict[str, str | None]) -> str:
    """Returns how kafka-configs names the entity of a quota."""
    words = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
    return ", ".join(
        f"the default {words[kind]}" if entity[kind] is None else f"{words[kind]} '{entity[kind]}'"
        for kind in words
        if kind in entity
    )


def test_acls(original: Path, ask: Callable[..., list[str]]) -> None:
    found = set()
    resource: tuple[str, ...] = ()
    for line in ask("org.apache.kafka.tools.AclCommand", "--list"):
        if pattern := PATTERN.search(line):
            resource = pattern.groups()
        elif entry := ENTRY.search(line):
            found.add((*resource, *entry.groups()))
    names = ("resourceType", "resourceName", "patternType", "principal", "host", "operation")
    expected = {
        tuple(row[name] for name in (*names, "permission"))
        for row in described(original, ClusterSubject.ACLS)
    }
    assert found == expected
