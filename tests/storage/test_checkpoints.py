"""Tests the small text files: intact, empty, torn and malicious ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.files.checkpoints import (
    EpochEntry,
    MetaProperties,
    PartitionMetadata,
    format_clean_shutdown,
    format_leader_epochs,
    format_meta_properties,
    format_offsets,
    format_partition_metadata,
    parse_clean_shutdown,
    parse_leader_epochs,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from kafkafs.storage.format.files.properties import (
    format_properties,
    iter_properties,
    parse_properties,
)
from kafkafs.storage.format.files.quorum_state import QuorumState, parse_quorum_state
from kafkafs.storage.format.primitives import is_uuid_text, random_uuid_text, uuid_text

PARSERS = (
    parse_offsets,
    parse_leader_epochs,
    parse_meta_properties,
    parse_partition_metadata,
    parse_clean_shutdown,
    parse_properties,
    parse_quorum_state,
)


def test_offsets() -> None:
    data = b"0\n2\ntrimmed 0 1433\na-b.c_d-7   1\t9223372036854775807\n"
    assert parse_offsets(data) == {("trimmed", 0): 1433, ("a-b.c_d-7", 1): 2**63 - 1}


@pytest.mark.parametrize("data", [b"", b"0\n", b"0", b"0\n0\n"])
def test_a_file_that_kafka_has_only_created_is_empty(data: bytes) -> None:
    assert parse_offsets(data) == {}
    assert parse_leader_epochs(data) == []


@pytest.mark.parametrize(
    ("data", "position", "what"),
    [
        (b"1\n0\n", 0, "checkpoint has version 1, expected 0"),
        (b"x\n0\n", 0, "not a number"),
        (b"\n0\n", 0, "not a number"),
        (b"0\n2\nt 0 5\n", 10, "1 entries, expected 2"),
        (b"0\n1\nt 0 5\nt 1 6\n", 16, "2 entries, expected 1"),
        (b"0\n-1\n", 2, "not a number from 0"),
        (b"0\n1\nt 0\n", 4, "2 fields in an entry, not 3"),
        (b"0\n1\nt 0 5 6\n", 4, "4 fields in an entry, not 3"),
        (b"0\n2\nt 0 5\nu 0 x\n", 10, "not a number"),
        (b"0\n1\nt 0 9223372036854775808\n", 4, "not a number"),
        (b"0\n1\nt 2147483648 1\n", 4, "not a number"),
        (b"0\n1\nt +1 1\n", 4, "not a number"),
        ("0\n1\nt ١ 1\n".encode(), 4, "not a number"),
        (b"0\n1\n\xff 0 5\n", 4, "not UTF-8"),
        (b"\0" * 30, 0, "not a number"),
    ],
)
def test_a_torn_checkpoint_names_the_place(data: bytes, position: int, what: str) -> None:
    with pytest.raises(CorruptError, match=what) as caught:
        parse_offsets(data)
    assert caught.value.position == position


def test_a_corrupt_entry_is_shortened_and_on_one_line() -> None:
    with pytest.raises(CorruptError) as caught:
        parse_offsets(b"0\n1\nt 0 " + b"\x1b\xff" * 1000 + b"\n")
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()


def test_leader_epochs() -> None:
    assert parse_leader_epochs(b"0\n2\n0 0\n3 1433\n") == [EpochEntry(0, 0), EpochEntry(3, 1433)]
    with pytest.raises(CorruptError, match="3 fields in an entry"):
        parse_leader_epochs(b"0\n1\n0 0 0\n")


def test_meta_properties_of_both_versions() -> None:
    v1 = (
        b"#\n#Sat Nov 21 08:15:44 UTC 2026\nnode.id=1\ndirectory.id=4_jJLQ9ddmarW-wRIn85hQ\n"
        b"version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
    )
    assert parse_meta_properties(v1) == MetaProperties(
        1, "MkU3OEVBNTcwNTJENDM2Qg", 1, "4_jJLQ9ddmarW-wRIn85hQ"
    )
    v0 = b"broker.id=7\nversion=0\ncluster.id=a\\=b\n"
    assert parse_meta_properties(v0) == MetaProperties(0, "a=b", 7, "")
    assert parse_meta_properties(b"") == MetaProperties()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"version=2\nnode.id=1\ncluster.id=x\n", "meta.properties has version 2, expected 0 or 1"),
        (b"version=one\n", "not a number"),
        (b"version=1\ncluster.id=x\n", "node.id is missing, but version 1 requires it"),
        (b"version=1\nnode.id=1\n", "cluster.id is missing"),
        (b"version=0\nbroker.id=\\u12\n", "u without four"),
        (b"version=0\nbroker.id=0x1\n", "not a number"),
        (b"version=0\ndirectory.id=short\n", "directory.id is not a UUID: short"),
        (b"version=0\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n", "directory.id is not a UUID"),
    ],
)
def test_meta_properties_that_kafka_would_refuse(data: bytes, what: str) -> None:
    with pytest.raises(CorruptError, match=what):
        parse_meta_properties(data)


def test_partition_metadata() -> None:
    data = b"version: 0\ntopic_id: nGzD2cX5TF6uAl_9vaE5hA"
    assert parse_partition_metadata(data) == PartitionMetadata(0, "nGzD2cX5TF6uAl_9vaE5hA")
    assert parse_partition_metadata(data.replace(b"0", b"3", 1) + b"\nnew: x\n").version == 3


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0",
        b"version: 0\n",
        b"version: -1\ntopic_id: nGzD2cX5TF6uAl_9vaE5hA",
        b"version 0\ntopic_id: nGzD2cX5TF6uAl_9vaE5hA",
        b"version: 0\ntopic_id: nGzD2cX5TF6uAl_9vaE5h",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: \xff\xff",
        b"topic_id: nGzD2cX5TF6uAl_9vaE5hA\nversion: 0",
    ],
)
def test_torn_partition_metadata(data: bytes) -> None:
    with pytest.raises(CorruptError):
        parse_partition_metadata(data)


@pytest.mark.parametrize(
    ("data", "epoch"),
    [(b"", -1), (b'{"version":0,"brokerEpoch":256}', 256), (b'{"version":0}', -1)],
)
def test_clean_shutdown(data: bytes, epoch: int) -> None:
    assert parse_clean_shutdown(data) == epoch


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b"7", b'{"brokerEpoch":"x"}', b'{"brokerEpoch":true}', b"[" * 3000]
)
def test_a_clean_shutdown_marker_that_is_no_json_object(data: bytes) -> None:
    with pytest.raises(CorruptError):
        parse_clean_shutdown(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a=1\nb:2\nc 3\nd\t=\t4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        (b"# x\n  ! y\n\n \t\na=1", {"a": "1"}),
        (b"a = b \n", {"a": "b "}),
        (b"a\n=b\n", {"a": "", "": "b"}),
        (b"a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        (b"a\\ b\\:c\\=d=\\t\\n\\u00e9\\x\n", {"a b:c=d": "\t\n\u00e9x"}),
        (b"a=1\\\n   2\\\n3\nb=4", {"a": "123", "b": "4"}),
        (b"a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        (b"a=1\\\n#2\n", {"a": "1#2"}),
        (b"a=\xe9", {"a": "\u00e9"}),
        (b"a=1\\", {"a": "1"}),
        (b"a=b=c", {"a": "b=c"}),
        (b"a==c", {"a": "=c"}),
        (b"a=1\na=2", {"a": "2"}),
    ],
)
def test_java_properties(data: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(data) == expected


def test_java_properties_with_their_places() -> None:
    data = b"# x\na=1\n\nb=2\\\n  3\n c\n=d\n"
    assert [tuple(each) for each in iter_properties(data)] == [
        (2, "a", "1", True),
        (4, "b", "23", True),
        (6, "c", "", False),
        (7, "", "d", True),
    ]
    with pytest.raises(CorruptError, match=r"line 3: .*hexadecimal"):
        list(iter_properties(b"a=1\n\nb=\\u12\n"))


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"a": "1", "b": "x y"}, b"a=1\nb=x y\n"),
        ({"a b": " 1 2"}, b"a\\ b=\\ 1 2\n"),
        ({"k:=#!": "v:=#!\\"}, b"k\\:\\=\\#\\!=v\\:\\=\\#\\!\\\\\n"),
        ({"k": "\t\n\r\f\x01\x7f"}, b"k=\\t\\n\\r\\f\\u0001\\u007F\n"),
        ({"k": "\u00e9\U0001f600"}, b"k=\\u00E9\\uD83D\\uDE00\n"),
    ],
)
def test_java_properties_are_escaped_as_java_does(values: dict[str, str], lines: bytes) -> None:
    written = format_properties(values, 1_793_606_944_999)
    assert written == b"#\n#Mon Nov 02 08:09:04 UTC 2026\n" + lines


@given(
    st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
)
def test_any_properties_come_back(values: dict[str, str]) -> None:
    assert parse_properties(format_properties(values, 0)) == values


@given(
    st.dictionaries(
        st.tuples(st.text("az.-_09", min_size=1), st.integers(0, 2**31 - 1)),
        st.integers(-(2**63), 2**63 - 1),
    )
)
def test_any_offsets_come_back_in_their_order(offsets: dict[tuple[str, int], int]) -> None:
    assert list(parse_offsets(format_offsets(offsets)).items()) == list(offsets.items())


def test_an_id_of_ours_is_no_option() -> None:
    ids = {random_uuid_text() for _ in range(500)}
    assert len(ids) == 500
    assert all(is_uuid_text(text) and not text.startswith("-") for text in ids)


@given(st.binary(min_size=16, max_size=16))
def test_ids_come_back(data: bytes) -> None:
    assert len(uuid_text(data)) == 22
    assert is_uuid_text(uuid_text(data)) is any(data)


def test_an_id_has_one_spelling() -> None:
    assert is_uuid_text("nGzD2cX5TF6uAl_9vaE5hA")
    for other in (
        "nGzD2cX5TF6uAl_9vaE5hB",
        "nGzD2cX5TF6uAl/9vaE5hA",
        "nGzD2cX5TF6uAl_9vaE5hA==",
        "",
    ):
        assert not is_uuid_text(other)


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
@given(data=st.binary() | st.text("0123456789-: \n=\\u#{}[]topicid_vers").map(str.encode))
def test_any_bytes_are_a_value_or_corrupt(parse: Callable[[bytes], object], data: bytes) -> None:
    with suppress(CorruptError):
        parse(data)


def test_every_small_file_in_the_corpora(corpora_dirs: list[Path]) -> None:
    for root in corpora_dirs:
        for path in root.glob("*-offset-checkpoint"):
            parse_offsets(path.read_bytes())
        for path in root.glob("*/leader-epoch-checkpoint"):
            parse_leader_epochs(path.read_bytes())
        for path in root.glob("*/partition.metadata"):
            parse_partition_metadata(path.read_bytes())
        assert parse_meta_properties((root / "meta.properties").read_bytes()).node_id == 1
        marker = root / ".kafka_cleanshutdown"
        if marker.exists():
            parse_clean_shutdown(marker.read_bytes())


Rewrite = Callable[[bytes], bytes]

REWRITES: dict[str, Rewrite] = {
    "*-offset-checkpoint": lambda data: format_offsets(parse_offsets(data)),
    "*/leader-epoch-checkpoint": lambda data: format_leader_epochs(parse_leader_epochs(data)),
    "*/partition.metadata": lambda data: format_partition_metadata(parse_partition_metadata(data)),
    ".kafka_cleanshutdown": lambda data: format_clean_shutdown(parse_clean_shutdown(data)),
    "meta.properties": lambda data: format_meta_properties(
        parse_meta_properties(data), milliseconds(data)
    ),
}


def milliseconds(data: bytes) -> int:
    """Returns the time in the second line of a properties file, in ms."""
    date = data.splitlines()[1].decode()
    return int(datetime.strptime(date + "+0000", "#%a %b %d %H:%M:%S UTC %Y%z").timestamp()) * 1000


@pytest.mark.parametrize("pattern", REWRITES)
def test_small_files_are_written_as_brokers_wrote_them(
    pattern: str, corpora_dirs: list[Path]
) -> None:
    """Excludes files that are still as they were created: empty."""
    written = [
        data for root in corpora_dirs for path in root.glob(pattern) if (data := path.read_bytes())
    ]
    assert len(written) >= 4
    for data in written:
        assert REWRITES[pattern](data) == data


@pytest.fixture
def corpora_dirs(corpus: Callable[[str], Path]) -> list[Path]:
    two = corpus("kafka43-two-dirs")
    return [
        corpus("kafka43-clean"),
        corpus("kafka43-crash"),
        corpus("kafka39"),
        corpus("kafka28"),
        two / "dir1",
        two / "dir2",
    ]


@pytest.mark.parametrize(("name", "epoch"), [("groups43", 2), ("kafka39", 1), ("kafka43-clean", 1)])
def test_the_quorum_as_nodes_note_it(name: str, epoch: int, corpus: Callable[[str], Path]) -> None:
    data = (corpus(name) / "__cluster_metadata-0" / "quorum-state").read_bytes()
    assert parse_quorum_state(data) == QuorumState(1, epoch, (1,))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"leaderId":1,"leaderEpoch":2}', "data_version is missing, expected 0 or 1"),
        ('{"leaderId":1,"leaderEpoch":true,"data_version":1}', "leaderEpoch is true, expected"),
        ('{"leaderId":-2,"leaderEpoch":2,"data_version":1}', "leaderId is -2, expected a number"),
        ('{"leaderId":1,"leaderEpoch":2,"currentVoters":7,"data_version":0}', "not an array"),
        (
            '{"leaderId":1,"leaderEpoch":2,"currentVoters":[7],"data_version":0}',
            "voterId is missing, expected a number from 0 to 2147483647",
        ),
        ("[1]", "expected a JSON object"),
        ("[" * 100_000, "invalid JSON"),
    ],
)
def test_a_quorum_state_that_kafka_would_reject(text: str, what: str) -> None:
    with pytest.raises(CorruptError, match=what):
        parse_quorum_state(text.encode())
