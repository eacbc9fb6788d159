"""Tests of `kafkafs dump`; tests/broker/test_dump.py compares its lines with Kafka's tool."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kafkafs import __version__
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import BatchFields, build_batch
from tests.cli.results import Corpus, Kafkafs, lines_of
from tests.logs import TopicSettings, write_partition

BATCH = re.compile(r"baseOffset: (\d+) lastOffset: (\d+) .* position: (\d+) .* isvalid: (\w+)")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Six batches of two records each, and an index entry for each batch but the first."""
    batches = [
        build_batch(
            [
                SimpleRecord(1000 + base, b"key", b"value %d" % base, [("h", b"1"), ("i", None)]),
                SimpleRecord(1001 + base, None, None),
            ],
            BatchFields(base_offset=base, codec=Codec.GZIP if base == 4 else Codec.NONE),
        )
        for base in range(0, 12, 2)
    ]
    write_partition(tmp_path / "t-0", batches, TopicSettings(index_interval_bytes=0))
    return tmp_path / "t-0" / "00000000000000000000.log"


def damage(path: Path, at: int, *, to: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(to)


def position_of(kafkafs: Kafkafs, log: Path, base: int) -> int:
    lines = map(BATCH.match, kafkafs("dump", log).stdout.splitlines())
    return next(int(line[3]) for line in lines if line is not None and int(line[1]) == base)


def test_records(kafkafs: Kafkafs, log: Path) -> None:
    dumping, begin, batch, first, second, *_ = lines_of(kafkafs("dump", "--print-data-log", log))
    assert dumping == f"Dumping {log}"
    assert begin == "Log starting offset: 0"
    assert batch.startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1"
    )
    assert first == (
        "| offset: 0 CreateTime: 1000 keySize: 3 valueSize: 7 sequence: -1 headerKeys: [h,i]"
        " key: key payload: value 0"
    )
    assert second == (
        "| offset: 1 CreateTime: 1001 keySize: -1 valueSize: -1 sequence: -1 headerKeys: []"
    )
    bare = kafkafs("dump", "--print-data-log", "--skip-record-metadata", log)
    assert bare.stdout.splitlines()[3:5] == ["| key: key payload: value 0", ""]


def test_several_files(kafkafs: Kafkafs, log: Path) -> None:
    index, times = log.with_suffix(".index"), log.with_suffix(".timeindex")
    result = kafkafs("dump", log, "--files", f"{index},{times}")
    assert result.stdout == "".join(kafkafs("dump", each).stdout for each in (log, index, times))
    assert result.stdout.count("Dumping ") == 3


def test_what_is_no_such_file(kafkafs: Kafkafs, log: Path) -> None:
    other = log.with_name("leader-epoch-checkpoint")
    other.write_text("0\n0\n")
    missing = log.with_name("00000000000000000009.log")
    pipe = log.with_name("00000000000000000008.log")
    os.mkfifo(pipe)
    result = kafkafs("dump", other, missing, log.parent, pipe, log)
    assert result.exit_code == 1
    assert result.stdout == kafkafs("dump", log).stdout.replace("Dump", f"Dumping {pipe}\nDump", 1)
    assert result.stderr.splitlines() == [
        f"kafkafs: {other}: unknown file, not a .log, .index, .timeindex, .txnindex, .snapshot or"
        " .checkpoint of a log directory",
        f"kafkafs: {missing}: no such file",
        f"kafkafs: {log.parent}: is a directory; name the files in it",
        f"{pipe}: a FIFO, not a regular file",
    ]
    assert kafkafs("dump", other).exit_code == 1
    assert kafkafs("dump").exit_code == 2


def test_a_wrong_checksum(kafkafs: Kafkafs, log: Path) -> None:
    """The batch and all later batches are printed, the records of the batch are not."""
    at = position_of(kafkafs, log, 6)
    damage(log, at + 70, to=b"\xff")
    result = kafkafs("dump", "--print-data-log", log)
    assert result.exit_code == 1
    batches = list(filter(None, map(BATCH.match, result.stdout.splitlines())))
    assert [(int(line[1]), line[4]) for line in batches] == [
        (base, "false" if base == 6 else "true") for base in range(0, 12, 2)
    ]
    assert "offset: 6 " not in result.stdout
    assert "| offset: 8 " in result.stdout
    wrong, heading, gap = result.stderr.splitlines()
    assert wrong.startswith(f"{log}: position {at}: batch 6-7: crc is ")
    assert heading == f"Non-consecutive offsets in {log}"
    assert gap == "  5 is followed by 8"


def test_records_that_cannot_be_decoded(kafkafs: Kafkafs, log: Path) -> None:
    at = position_of(kafkafs, log, 4)
    payload = log.read_bytes()[at : position_of(kafkafs, log, 6)]
    batch = build_batch([], BatchFields(base_offset=4, last_offset=5, codec=Codec.GZIP))
    assert len(batch) < len(payload)
    damage(log, at + 61, to=bytes(len(payload) - 61))  # neither valid gzip nor a matching checksum
    result = kafkafs("dump", "--deep-iteration", log)
    assert result.exit_code == 1
    assert f"{log}: position {at}: " in result.stderr
    assert "| offset: 6 " in result.stdout


@pytest.mark.parametrize("lost", [1, 40, 91])
def test_a_torn_end(kafkafs: Kafkafs, log: Path, lost: int) -> None:
    at, size = position_of(kafkafs, log, 10), log.stat().st_size
    with log.open("r+b") as file:
        file.truncate(size - lost)
    result = kafkafs("dump", log)
    assert result.exit_code == 1
    left = size - lost - at
    assert result.stdout.endswith(f"Found {left} invalid bytes at the end of {log.name}\n") == (
        left > 0
    )
    assert f"{log}: position {at}: " in result.stderr


def test_no_more_than_asked_for(kafkafs: Kafkafs, log: Path) -> None:
    """A batch that --max-bytes cuts off is not reported as an error."""
    at = position_of(kafkafs, log, 4)
    for most, count in ((0, 0), (at - 1, 1), (at, 2), (at + 1, 2), (1 << 30, 6)):
        lines = lines_of(kafkafs("dump", "--max-bytes", most, log))
        assert len(list(filter(BATCH.match, lines))) == count


def test_damage_right_in_front_of_where_reading_ends(kafkafs: Kafkafs, log: Path) -> None:
    at, end = position_of(kafkafs, log, 2), position_of(kafkafs, log, 4)
    damage(log, at + 70, to=b"\xff")
    for most, is_told in ((at, False), (at + 1, True), (end, True), (end + 1, True)):
        result = kafkafs("dump", "--max-bytes", most, log)
        assert result.exit_code == is_told
        assert (f"{log}: position {at}: " in result.stderr) == is_told
        assert " invalid bytes " not in result.stdout


def test_batches_in_disorder(kafkafs: Kafkafs, log: Path) -> None:
    """Their checksums still match."""
    data = log.read_bytes()
    first, second, third = (position_of(kafkafs, log, base) for base in (2, 4, 6))
    log.write_bytes(data[:first] + data[second:third] + data[first:second] + data[third:])
    result = kafkafs("dump", "--deep-iteration", log)
    assert result.exit_code == 1
    assert f"{log}: position " in result.stderr
    assert "isvalid: false" not in result.stdout


def test_an_index_of_another_log(kafkafs: Kafkafs, log: Path) -> None:
    index = log.with_suffix(".index")
    (second,) = (index.read_bytes()[8:16],)
    damage(index, 8, to=second[:4] + (17).to_bytes(4, "big"))
    result = kafkafs("dump", "--verify-index-only", index)
    assert result.exit_code == 1
    assert result.stdout == f"Dumping {index}\n"
    heading, mismatch = result.stderr.splitlines()
    assert heading == f"Mismatches in :{index}"
    assert mismatch.startswith("  Index offset: 5, log offset: ")


def test_an_index_alone(kafkafs: Kafkafs, log: Path) -> None:
    shown = kafkafs("dump", log.with_suffix(".index")).stdout
    log.unlink()
    for suffix in (".index", ".timeindex"):
        result = kafkafs("dump", log.with_suffix(suffix))
        assert result.exit_code == 1
        assert "not checked, because its .log is not in the directory" in result.stderr
    assert kafkafs("dump", log.with_suffix(".index")).stdout == shown


@pytest.mark.parametrize(
    ("suffix", "content", "why"),
    [
        (".index", bytes(9), "9 bytes is not a multiple of 8"),
        (".index", b"\xff" * 8, "the last offset is -1, less than its base offset"),
        (".timeindex", bytes(8) + b"\xff" * 4, "the last offset is -1, less than its base offset"),
        (
            ".timeindex",
            bytes(7) + b"\5" + bytes(16),
            "the last timestamp is 0, less than the first, 5",
        ),
    ],
)
def test_indexes_that_are_not_sane(
    kafkafs: Kafkafs, log: Path, suffix: str, content: bytes, why: str
) -> None:
    index = log.with_suffix(suffix)
    assert kafkafs("dump", "--index-sanity-check", index).stdout.endswith("passed sanity check.\n")
    index.write_bytes(content)
    result = kafkafs("dump", "--index-sanity-check", index)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{index}: {why}")


def test_a_snapshot_that_is_damaged(kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path) -> None:
    (found, *_) = sorted(corpus("kafka43-clean").glob("txn-0/*.snapshot"))[1:]
    copy = tmp_path / found.name
    copy.write_bytes(found.read_bytes())
    assert kafkafs("dump", copy).stdout.splitlines()[1].startswith("producerId: ")
    damage(copy, 8, to=b"\xff")
    result = kafkafs("dump", copy)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{copy}: ")


def test_findings_beyond_counting(
    kafkafs: Kafkafs, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of findings kept for the summary is bounded."""
    data = log.read_bytes()
    batches = [position_of(kafkafs, log, base) for base in (2, 4, 6, 8, 10)]
    second, fourth = data[batches[0] : batches[1]], data[batches[2] : batches[3]]
    log.write_bytes(data[: batches[0]] + fourth + data[batches[4] :])
    assert second not in log.read_bytes()
    reported = kafkafs("dump", "--deep-iteration", log).stderr.splitlines()
    assert reported == [
        f"Non-consecutive offsets in {log}", "  1 is followed by 6", "  7 is followed by 10"
    ]  # fmt: skip
    monkeypatch.setattr("kafkafs.storage.segment.dump.dump._MOST_FINDINGS", 1)
    reported = kafkafs("dump", "--deep-iteration", log).stderr.splitlines()
    assert reported[1:] == ["  1 is followed by 6", "  and 1 more"]


def test_a_decoder(kafkafs: Kafkafs, corpus: Corpus) -> None:
    """As in Kafka's tool, a decoder implies --print-data-log."""
    log = corpus("kafka43-clean") / "__consumer_offsets-1" / "00000000000000000000.log"
    lines = kafkafs("dump", "--offsets-decoder", "--skip-record-metadata", log).stdout.splitlines()
    record = (
        '| key: {"type":"1","data":{"group":"billing-part","topic":"orders","partition":0}}'
        ' payload: {"version":"4","data":{"offset":5,"leaderEpoch":-1,"metadata":"",'
    )
    assert lines[3].startswith(record)


def test_the_snapshot_that_a_cluster_begins_with(kafkafs: Kafkafs, corpus: Corpus) -> None:
    path = corpus("groups43") / "bootstrap.checkpoint"
    lines = lines_of(kafkafs("dump", "--cluster-metadata-decoder", "--skip-record-metadata", path))
    assert lines[:2] == [f"Dumping {path}", "KRaft bootstrap snapshot"]
    feature = '{"name":"metadata.version","featureLevel":30}'
    assert f'| payload: {{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{feature}}}' in lines


def test_the_wrong_decoder(kafkafs: Kafkafs, corpus: Corpus) -> None:
    """Each record reports the error, and the dump continues."""
    log = corpus("kafka43-clean") / "orders-0" / "00000000000000000000.log"
    result = kafkafs("dump", "--offsets-decoder", log)
    assert result.exit_code == 0
    records = [line for line in result.stdout.splitlines() if line.startswith("|")]
    assert records
    for line in records:
        assert re.search(r" key: (Unknown record type|Error at offset) ", line)


def test_two_decoders(kafkafs: Kafkafs, log: Path) -> None:
    result = kafkafs("dump", "--offsets-decoder", "--cluster-metadata-decoder", log)
    assert result.exit_code == 2
    assert "only one decoder can be used" in result.stderr


def test_the_version(kafkafs: Kafkafs) -> None:
    result = kafkafs("dump", "--version")
    assert (result.exit_code, result.stdout) == (0, f"kafkafs {__version__}\n")


def test_surrogates_are_one_replacement_character_as_in_java(
    kafkafs: Kafkafs, tmp_path: Path
) -> None:
    value = b"a\xed\xa0\x80b\xed\xbfc\xed\xa0"
    write_partition(tmp_path / "t-0", [build_batch([SimpleRecord(5, None, value)])])
    result = kafkafs("dump", "--print-data-log", tmp_path / "t-0" / f"{0:020}.log")
    assert result.stdout.splitlines()[-1].endswith(" payload: a\ufffdb\ufffdc\ufffd")
