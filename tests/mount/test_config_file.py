"""Writes to `config.properties`, as changes of configs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.mount.vfs import render
from kafkafs.mount.vfs.errnos import Invalid
from kafkafs.mount.writes import config_file
from kafkafs.mount.writes.config_file import ConfigFile, differences, parse
from kafkafs.storage.config.kafka import Configs, Resolved, topic_config
from kafkafs.storage.log_manager import LogManager

_VALUES = {
    "retention.ms": st.integers(-1, 10**12).map(str),
    "segment.bytes": st.integers(1 << 20, 1 << 30).map(str),
    "cleanup.policy": st.sampled_from(("delete", "compact", "compact,delete")),
    "preallocate": st.sampled_from(("true", "false")),
    "min.cleanable.dirty.ratio": st.floats(0, 1).map(str),
    "compression.type": st.sampled_from(("zstd", "producer")),
}
_TEXTS = st.fixed_dictionaries({}, optional=_VALUES)


def shown(own: dict[str, str], cluster: dict[str, str], run: dict[str, str]) -> Resolved:
    return topic_config(Configs(run=run, topic_file=own, topic=cluster))


def changed(own: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    """Returns a topic's own configs after the changes."""
    kept = {name: text for name, text in own.items() if name not in changes}
    return {**kept, **{name: text for name, text in changes.items() if text is not None}}


@given(_TEXTS, _TEXTS, _TEXTS)
def test_what_is_shown_changes_nothing(
    own: dict[str, str], cluster: dict[str, str], run: dict[str, str]
) -> None:
    now = shown(own, cluster, run)
    given = parse("t", render.properties(now.changed))
    assert {name: each.value for name, each in given.items()} == now.changed
    assert differences("t", given, now, own) == {}


@given(_TEXTS, _TEXTS, _TEXTS)
def test_what_is_written_counts(
    own: dict[str, str], cluster: dict[str, str], wanted: dict[str, str]
) -> None:
    """Overrides any previous configs; what is omitted has the cluster's value or the default."""
    now = shown(own, cluster, {})
    changes = differences("t", parse("t", render.properties(wanted)), now, own)
    after = shown(changed(own, changes), cluster, {}).changed
    normal = shown(wanted, {}, {}).changed
    assert {name: after[name] for name in wanted} == normal
    assert after.keys() - wanted.keys() <= cluster.keys()
    assert changes.keys() <= own.keys() | wanted.keys()


def test_what_was_said_for_the_run_stays() -> None:
    now = shown({"retention.ms": "1"}, {}, {"retention.ms": "5"})
    assert differences("t", parse("t", b"retention.ms=5"), now, {"retention.ms": "1"}) == {}
    with pytest.raises(
        Invalid, match=r"t/config.properties, line 2: retention.ms: was set with -c"
    ):
        differences("t", parse("t", b"\nretention.ms=6"), now, {"retention.ms": "1"})


def test_what_nobody_understands_stays() -> None:
    """Configs of a later Kafka in the stored file are not shown, and therefore not removed."""
    own = {"later.setting": "1", "retention.ms": "5"}
    assert differences("t", {}, shown(own, {}, {}), own) == {"retention.ms": None}


@given(st.binary())
def test_any_bytes(data: bytes) -> None:
    """They are configs, or rejected with a message of one line."""
    reason = ""
    try:
        found = parse("t", data)
    except Invalid as error:
        found, reason = {}, str(error)
    assert not reason or reason.startswith("t/config.properties, line ")
    assert reason.isprintable()
    assert len(reason) < 400
    assert shown({name: each.value for name, each in found.items()}, {}, {}).problems == ()


def test_a_removed_file_is_absent_for_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(config_file, "monotonic", lambda: now)
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t")
        file = ConfigFile(engine, "t", 0)
        assert file.is_there
        file.put_aside()
        assert not file.is_there
        now += 0.999
        assert not file.is_there
        now = 101.0
        assert file.is_there
        file.put_aside()
        file.open(empty=True)
        assert file.is_there
