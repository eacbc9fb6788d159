"""The promises of SEMANTICS.md about `compacted`, one by one."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests import answers
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, write_topic
from tests.mounted.conftest import Mounting
from tests.mounted.live import TIMESTAMP, LiveLog, value
from tests.mounted.mounting import Mount, errno_of, sh, waiting_for
from tests.mounted.promises import promise
from tests.waiting import PATIENCE_SECONDS, wait_until

#: Topics compacted by a broker whose result does not depend on the date.
TIMELESS = sorted(set(answers.topic_configs("compact-before")) - {"cmp-lag", "cmp-delete"})
STREAMS = ("records.jsonl", "values", "keys")


def summary(partition: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((partition / "compacted" / "summary.json").read_text())
    return found


def status(partition: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((partition / "status.json").read_text())
    return found


def times_found(mount: Mount) -> int:
    """Returns how often the daemon computed what would be left of a partition."""
    return mount.log.read_text(encoding="utf-8").count("what compaction would leave")


def times_counted(mount: Mount) -> int:
    """Returns how often it counted removed records separately."""
    return mount.log.read_text(encoding="utf-8").count("what compaction would remove")


@promise(
    "`compacted` contains `offset`, `latest`, `records.jsonl`, `decoded.jsonl`, `values`, `keys`"
    " and `summary.json`, and nothing else."
)
def test_names(clean: Path) -> None:
    names = [
        *("offset", "latest", "records.jsonl", "decoded.jsonl", "values", "keys"),
        "summary.json",
    ]
    assert os.listdir(clean / "orders" / "0" / "compacted") == names
    with pytest.raises(FileNotFoundError):
        os.stat(clean / "orders" / "0" / "compacted" / "time")


@promise(
    "It shows the records that Kafka's cleaner would retain, and the streams and listings in it"
    " have the form of those beside it."
)
@pytest.mark.parametrize("pair", ["", "2"])
def test_as_a_broker_left_it(corpus: Callable[[str], Path], mount: Mounting, pair: str) -> None:
    before = mount(corpus(f"compact-before{pair}")).point
    after = mount(corpus(f"compact-after{pair}")).point
    for topic in TIMELESS:
        shown, expected = before / topic / "0" / "compacted", after / topic / "0"
        for name in STREAMS:
            assert (shown / name).read_bytes() == (expected / name).read_bytes(), (topic, name)
        assert os.listdir(shown / "offset") == os.listdir(expected / "offset")
        for link in ("first", "last"):
            assert os.readlink(shown / "offset" / link) == os.readlink(expected / "offset" / link)
    sh("find */0/compacted -type f -print0 | xargs -0 stat -c %s > /dev/null", before)


@promise(
    "`compacted/offset/N`, `N.key` and `N.json` are the same files that `offset` contains under"
    " these names, and ENOENT if the record would be discarded."
)
def test_records(clean: Path) -> None:
    partition = clean / "orders" / "0"
    listed = [int(name) for name in os.listdir(partition / "offset") if name.isdigit()]
    kept = [int(name) for name in os.listdir(partition / "compacted" / "offset") if name.isdigit()]
    assert 0 < len(kept) < len(listed)
    for offset in kept[:5] + kept[-5:]:
        for name in (f"{offset}", f"{offset}.key", f"{offset}.json", f"00{offset}"):
            here, there = partition / "compacted" / "offset" / name, partition / "offset" / name
            assert os.path.samefile(here, there)
            assert here.read_bytes() == there.read_bytes()
            assert os.listxattr(here) == os.listxattr(there)
    for offset in sorted(set(listed) - set(kept))[:5]:
        for name in (f"{offset}", f"{offset}.key", f"{offset}.json"):
            assert (partition / "offset" / name).exists()
            with pytest.raises(FileNotFoundError):
                os.stat(partition / "compacted" / "offset" / name)


@promise(
    "`compacted/latest/K` is the file of the latest retained record with the key K, named as in"
    " `key`, and ENOENT if none is retained or it is a tombstone."
)
def test_latest(clean: Path, corpus: Callable[[str], Path], mount: Mounting) -> None:
    partition = clean / "orders" / "0"
    names = os.listdir(partition / "compacted" / "latest")
    assert names == os.listdir(partition / "key")
    for name in names[:20]:
        here, there = partition / "compacted" / "latest" / name, partition / "key" / name
        assert os.path.samefile(here, there)
        assert here.read_bytes() == there.read_bytes()
    # records that retention would delete are not in latest/
    settings = {
        "cleanup.policy": "compact,delete",
        "retention.bytes": "100000",
        "retention.ms": "-1",
    }
    expiring = mount(corpus("kafka43-clean"), settings=settings).point / "orders" / "0"
    left = os.listdir(expiring / "compacted" / "latest")
    assert 0 < len(left) < len(names)
    kept = set((expiring / "compacted" / "keys").read_text().splitlines())
    assert set(left) == kept
    gone = set(names) - kept
    assert not any((expiring / "compacted" / "latest" / name).exists() for name in gone)
    # a tombstone is retained for a while, as a record without a value
    tombs = mount(corpus("compact-after")).point / "cmp-tomb" / "0"
    text = (tombs / "compacted" / "records.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    latest = {line["key"]: line["value"] for line in lines}
    assert None in latest.values()
    alive = {key for key, value in latest.items() if value is not None}
    assert set(os.listdir(tombs / "compacted" / "latest")) == alive


@promise(
    "All records in segments that may not be cleaned are shown: those of the active segment, those"
    " younger than `min.compaction.lag.ms`, and those in segments that reach above the first open"
    " transaction or follow such a segment."
)
def test_what_may_not_be_cleaned(
    tmp_path: Path, clean: Path, corpus: Callable[[str], Path], mount: Mounting
) -> None:
    lag = {"min.compaction.lag.ms": str(2**62)}
    young = mount(corpus("kafka43-clean"), settings=lag).point
    write_open_transaction(tmp_path / "logs")
    unstable = mount(tmp_path / "logs", "isolation=read_uncommitted").point
    bounds = []
    for partition in (clean / "orders" / "0", unstable / "t" / "0", young / "orders" / "0"):
        found = summary(partition)
        bounds.append(found["bound"])
        above = [
            [name for name in os.listdir(where) if name.isdigit() and int(name) >= end]
            for end in [found["firstUncleanableOffset"]]
            for where in (partition / "offset", partition / "compacted" / "offset")
        ]
        assert above[0] == above[1]
        assert above[0]
    assert bounds == [
        "it is the active segment",
        "it reaches above the last stable offset",
        "it has records younger than min.compaction.lag.ms",
    ]


def write_open_transaction(directory: Path) -> None:
    """Writes a log directory with `t-0`: one key in 30 segments, and a transaction open from 10
    on."""
    batches = [
        build_batch(
            [SimpleRecord(TIMESTAMP, b"key", value(at))],
            BatchFields(
                base_offset=at,
                is_transactional=at == 10,
                producer_id=7 if at == 10 else -1,
                producer_epoch=0 if at == 10 else -1,
                base_sequence=0 if at == 10 else -1,
            ),
        )
        for at in range(30)
    ]
    write_topic(directory, batches, TopicSettings(segment_bytes=len(batches[0])))


@promise(
    'If `cleanup.policy` also includes "delete", records that retention would delete are not shown.'
)
def test_what_expires(live: LiveLog, mount: Mounting) -> None:
    settings = {"cleanup.policy": "compact,delete", "retention.bytes": "200", "retention.ms": "-1"}
    partition = mount(live.directory, settings=settings).point / "t" / "0"
    kept = [name for name in os.listdir(partition / "compacted" / "offset") if name.isdigit()]
    assert kept == os.listdir(partition / "offset")[-len(kept) :]
    assert 0 < len(kept) < 6
    assert summary(partition)["gone"]["expired"] == 6 - len(kept)


@promise(
    'A topic whose `cleanup.policy` does not include "compact" is shown as though "compact" were'
    " its policy."
)
def test_a_topic_that_is_not_compacted(clean: Path) -> None:
    partition = clean / "orders" / "0"
    assert not summary(partition)["isCompacted"]
    end = summary(partition)["firstUncleanableOffset"]
    records = list(answers.records("kafka43-clean", "orders", 0))
    latest = {record.key: record.offset for record in records if record.offset < end}
    kept = [r.offset for r in records if r.offset >= end or latest[r.key] == r.offset]
    shown = [int(n) for n in os.listdir(partition / "compacted" / "offset") if n.isdigit()]
    assert shown == kept


@promise(
    "`summary.json` is a JSON object with records, bytes and segments before and after, the"
    " discarded records by reason, and why and where compaction would stop or not start."
)
def test_summary(corpus: Callable[[str], Path], mount: Mounting) -> None:
    point = mount(corpus("compact-before")).point
    found = summary(point / "cmp-txn" / "0")
    after = (point / "cmp-txn" / "0" / "compacted" / "values").read_bytes().count(b"\n")
    assert found["records"] == {"before": 968, "after": 85}
    assert after == 83  # two are in a transaction that the broker had not ended
    assert found["gone"] == {
        "superseded": 671, "tombstone": 0, "aborted": 212, "keyless": 0, "expired": 0
    }  # fmt: skip
    assert found["bytes"]["saved"] == found["bytes"]["before"] - found["bytes"]["after"]
    assert found["segments"] == {"before": 13, "after": 13}
    assert (found["firstDirtyOffset"], found["firstUncleanableOffset"]) == (0, 1028)
    assert found["bound"] == "it is the active segment"
    assert (found["dirtyRatio"], found["minCleanableDirtyRatio"]) == (1.0, 0.01)
    assert found["isEligible"]
    assert found["passes"] == 1


# -- while it is computed -----------------------------------------------------------------------


# A daemon that computes step by step, as many steps as the file `told` allows.
_HELD_BACK = """
import itertools, sys, time
from pathlib import Path
from kafkafs import storage
from kafkafs.mount.options import parse_options
from kafkafs.mount.session.session import mount
from kafkafs.storage.log_dirs.engine import Engine

def held_back(request, told, check, preview=storage.preview, **how):
    steps = itertools.count()
    def tell(done, total):
        told(done, total)
        step = next(steps)
        while int(Path(sys.argv[3]).read_text()) <= step:
            check()
            time.sleep(0.01)
    return preview(request, tell, check, **how)

storage.preview = held_back
mount([sys.argv[1]], sys.argv[2], parse_options(""), foreground=True, make_engine=Engine)
"""


@contextmanager
def held_back(where: Path) -> Iterator[tuple[Mount, Callable[[int], None]]]:
    """Mounts a directory with `t-0`, 600 records of 200 keys in segments that are one step each.
    Yields the mount and a function that allows a number of steps, at first none."""

    def allow(steps: int) -> None:
        told.with_suffix(".new").write_text(str(steps))
        told.with_suffix(".new").replace(told)

    told = where / "told"
    allow(0)
    batches = [
        build_batch(
            [SimpleRecord(TIMESTAMP, b"key %d" % (at % 200), value(at)) for at in range(base, end)],
            BatchFields(base_offset=base),
        )
        for base, end in itertools.pairwise(range(0, 601, 50))
    ]
    write_topic(where / "logs", batches, TopicSettings(segment_bytes=1 << 12))
    with waiting_for(told, _HELD_BACK, where / "logs") as mounted:
        wait_until(lambda: errno_of(os.stat, mounted.point / "t") == 0)
        yield mounted, allow


@promise(
    "It is computed once, however many processes use it at the same time and afterwards, as long"
    " as no segment is rolled, cleaned or deleted; appended records are shown at once."
)
def test_computed_once(live: LiveLog, mount: Mounting) -> None:
    mounted = mount(live.directory)
    partition = mounted.point / "t" / "0"
    readers = [
        subprocess.Popen(["cat", name], cwd=partition / "compacted", stdout=subprocess.DEVNULL)
        for name in (*STREAMS, "summary.json", "offset/5", "offset/last") * 3
    ]
    assert [reader.wait(PATIENCE_SECONDS) for reader in readers] == [0] * len(readers)
    for _ in range(3):
        [offset] = live.append(1)
        assert (partition / "compacted" / "offset" / str(offset)).read_bytes() == value(offset)
        assert (partition / "compacted" / "values").read_bytes().endswith(value(offset) + b"\n")
        assert os.listdir(partition / "compacted" / "offset")[-1] == str(offset)
    assert times_found(mounted) == 1
    live.roll()
    live.append(1)
    assert len((partition / "compacted" / "values").read_bytes().splitlines()) == live.end
    assert times_found(mounted) == 2


@promise(
    "If the keys alone decide which records are retained, as in a log that was never cleaned and"
    " has no transactions, discarded records are counted when `summary.json` is first read, and"
    " nothing else waits for that."
)
def test_counted_when_asked(live: LiveLog, corpus: Callable[[str], Path], mount: Mounting) -> None:
    mounted = mount(live.directory)
    partition = mounted.point / "t" / "0"
    for name in (*STREAMS, "offset/5"):
        assert (partition / "compacted" / name).read_bytes()
    assert os.listdir(partition / "compacted" / "latest")
    assert (times_found(mounted), times_counted(mounted)) == (1, 0)
    for _ in range(2):
        assert summary(partition)["records"]["before"] == live.end
        assert (times_found(mounted), times_counted(mounted)) == (1, 1)
    live.roll()
    assert summary(partition)["records"]["before"] == live.end
    assert (partition / "compacted" / "values").read_bytes()
    assert (times_found(mounted), times_counted(mounted)) == (2, 1)

    others = mount(corpus("compact-before"))
    for topic in ("cmp-txn", "cmp-delete"):  # markers are counted with the rest, sizes are needed
        data = (others.point / topic / "0" / "compacted" / "values").read_bytes()
        assert data or topic == "cmp-delete"  # of which retention deletes all, some day
        expected = {"cmp-txn": {1}, "cmp-delete": {0, 1}}  # none once retention has deleted all
        assert summary(others.point / topic / "0")["passes"] in expected[topic]
    assert (times_found(others), times_counted(others)) == (2, 0)


@promise(
    "While it is computed, `status.json` reports the progress, and all other files can be read."
)
def test_progress(tmp_path: Path) -> None:
    with held_back(tmp_path) as (mounted, allow):
        partition = mounted.point / "t" / "0"

        def progress() -> dict[str, Any]:
            found: dict[str, Any] = status(partition)["compacted"]
            return found

        assert progress() == {"state": "unknown"}
        # far more than there are threads to answer requests
        readers = [
            subprocess.Popen(
                ["head", "-1", "values"], cwd=partition / "compacted", stdout=subprocess.DEVNULL
            )
            for _ in range(60)
        ]
        done = -1
        for steps in range(1, 4):
            wait_until(lambda: progress().get("done", -1) > done)  # noqa: B023
            then = progress()
            assert then["state"] == "computing"
            assert done < then["done"] < then["total"]
            done = then["done"]
            assert (partition / "offset" / "17").read_bytes() == value(17)
            assert len((partition / "values").read_bytes().splitlines()) == 600
            allow(steps)
        allow(sys.maxsize)
        assert [reader.wait(PATIENCE_SECONDS) for reader in readers] == [0] * len(readers)
        assert progress() == {"state": "known"}
        assert times_found(mounted) == 1


@promise(
    "A read of a stream or of `summary.json` that waits for it ends with EINTR about once a"
    " second, so that an interrupted reader is not blocked."
)
@pytest.mark.parametrize("name", ["values", "summary.json"])
def test_interrupting(tmp_path: Path, name: str) -> None:
    with held_back(tmp_path) as (mounted, _):
        partition = mounted.point / "t" / "0"
        where = partition / "compacted"
        reader = subprocess.Popen(["cat", name], cwd=where, stdout=subprocess.DEVNULL)
        wait_until(lambda: status(partition)["compacted"]["state"] == "computing")
        reader.send_signal(signal.SIGINT)
        assert reader.wait(PATIENCE_SECONDS) == -signal.SIGINT  # nothing else ends its read
        assert status(partition)["compacted"]["state"] == "computing"
        assert times_found(mounted) == 0
        assert mounted.end() == 0  # nor does the daemon wait for it


@promise(
    "What compaction would newly discard disappears within a second, and an open stream continues"
    " with what it showed."
)
def test_changes(live: LiveLog, mount: Mounting) -> None:
    compacted = mount(live.directory).point / "t" / "0" / "compacted"
    assert (compacted / "offset" / "1").read_bytes() == value(1)
    with (compacted / "values").open("rb", buffering=0) as stream:
        before = stream.read(10)
        again = [SimpleRecord(TIMESTAMP, b"key 1", b"another")]
        with live.active().open("ab") as file:
            file.write(build_batch(again, BatchFields(base_offset=live.end)))
        live.end += 1
        live.roll()
        wait_until(lambda: not (compacted / "offset" / "1").exists())
        assert "1" not in os.listdir(compacted / "offset")
        assert "another" in (compacted / "values").read_text().splitlines()
        assert "value 1" not in (compacted / "values").read_text().splitlines()
        assert before + stream.read() == b"".join(value(at) + b"\n" for at in range(6))


@promise(
    "Damage in what would be cleaned makes everything in `compacted` EIO, is logged and listed"
    " like other damage, and everything else can be read."
)
def test_damage(live: LiveLog, mount: Mounting) -> None:
    path = live.damage(3)
    mounted = mount(live.directory)
    partition = mounted.point / "t" / "0"
    compacted = partition / "compacted"
    for name in (*STREAMS, "summary.json", "offset/0", "offset/5"):
        assert errno_of((compacted / name).read_bytes) == errno.EIO, name
    assert errno_of(os.listdir, compacted / "offset") == errno.EIO
    assert errno_of(os.readlink, compacted / "offset" / "first") == errno.EIO
    assert (partition / "offset" / "0").read_bytes() == value(0)
    [line] = mounted.lines("WARNING")
    assert str(path) in line
    [damage] = status(partition)["damage"]
    assert damage["file"] == str(path)
    assert damage["position"] > 0
    assert str(path) in status(partition)["compacted"]["why"]


def test_the_size_of_a_stream_that_was_read_stays_known(live: LiveLog, mount: Mounting) -> None:
    """The name leads to another file once the preview is known, which has the size at once."""
    unmeasured = {"kafkafs.size.wait.ms": "0"}
    compacted = mount(live.directory, "", unmeasured).point / "t" / "0" / "compacted"
    for name in STREAMS:
        with (compacted / name).open("rb") as file:
            size = len(file.read())
        assert (compacted / name).stat().st_size == size
        assert (compacted / name).stat().st_size == size
