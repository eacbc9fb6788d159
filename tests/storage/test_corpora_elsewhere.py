"""The tests of `test_corpora.py`, of corpora that are read from their archives, as they lie in this
repository, and from a bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from tests import answers, s3
from tests.storage.test_corpora import (  # noqa: F401 - run here once more
    test_a_time_is_answered_as_kafka_does_or_truly,
    test_a_torn_log_is_read_up_to_and_past_each_damage,
    test_every_isolation_finds_each_record_by_its_offset,
    test_nothing_sound_is_reported_as_damage,
    test_offsets_are_those_that_the_broker_named,
    test_read_committed_is_the_default,
    test_records_are_those_that_a_consumer_was_given,
    test_the_end_of_a_torn_log_is_where_its_last_whole_batch_ends,
    test_what_a_broker_answers_to_a_time_is_known_too,
)


@pytest.fixture(scope="module", params=["archive", "bucket"])
def view(
    request: pytest.FixtureRequest, corpus: Callable[[str], Path]
) -> Iterator[Callable[[str, str, int], View]]:
    """Returns `view(corpus, topic, partition)`, which opens each corpus once."""

    @cache
    def engine(name: str) -> Engine:
        path = corpus(name)
        inner = sorted(found.parent.name for found in path.glob("*/meta.properties"))
        if request.param == "archive":
            above = str(answers.DATA / "corpora" / f"{name}.tar.gz")
        else:
            above = server.upload(path, name)
        return Engine([f"{above}/{each}" for each in inner] or [above])

    if request.param == "archive":
        yield lambda name, topic, partition: engine(name).log(topic, partition).view()
        return
    with s3.serving() as server:
        yield lambda name, topic, partition: engine(name).log(topic, partition).view()
