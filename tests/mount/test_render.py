"""Configs and attributes as bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkafs.mount.vfs import render
from kafkafs.storage.format.files.properties import parse_properties

#: Kafka's configs are ASCII. Characters above 16 bits need two escapes, which few parsers join.
TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))


@given(st.dictionaries(TEXT, TEXT, max_size=5))
def test_properties_are_read_back(settings: dict[str, str]) -> None:
    assert parse_properties(render.properties(settings)) == settings


def test_properties_are_plain_and_sorted() -> None:
    settings = {"segment.ms": "100", "cleanup.policy": "compact,delete"}
    assert render.properties(settings) == b"cleanup.policy=compact,delete\nsegment.ms=100\n"


def test_names_that_linux_can_list() -> None:
    small, large = {"user.kafka.a": b"1"}, {"user.kafka.b": b"x" * 65537}
    assert render.listed_xattrs({**small, **large}) == [b"user.kafka.a"]
    many = {f"user.kafka.header.{at:0200}": b"" for at in range(1000)}
    listed = render.listed_xattrs(many)
    assert sum(len(name) + 1 for name in listed) <= 65536
    assert 250 < len(listed) < 1000
