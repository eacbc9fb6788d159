"""The cluster in Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kafkafs
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests import answers
from tests.building import BatchFields, build_batch

Corpus = Callable[[str], Path]


def test_the_state_of_the_cluster_and_its_changes(corpus: Corpus) -> None:
    with kafkafs.open(corpus("groups43")) as d:
        now, before = d.cluster(), d.cluster(offset=529)
        assert (now.offset, before.offset, now.problems) == (555, 529, [])
        assert d.cluster(at=1795474383475).topics == before.topics
        ids = {topic["topic"]: topic["topicId"] for topic in now.topics}
        assert ids == answers.topic_ids("groups43")
        assert repr(before) == "<Cluster MkU3OEVBNTcwNTJENDM2Qg after offset 528>"
        assert before.summary["users"] == len(before.users) == 2
        counts = [before.brokers, before.configs, before.quotas, before.acls, before.voters]
        assert list(map(len, counts)) == [1, 16, 6, 8, 1]
        changes = list(d.cluster_changes())
        assert (changes[-1].offset, changes[-1].kind) == (553, "brokerFenced")
        with pytest.raises(kafkafs.MetadataUnavailable):
            d.cluster(offset=556)
    with (
        kafkafs.open(corpus("kafka28")) as d,
        pytest.raises(kafkafs.NoClusterMetadata, match="no __cluster_metadata-0"),
    ):
        d.cluster()


def test_records_that_cannot_be_read_are_not_passed_over(writable_corpus: Corpus) -> None:
    root = writable_corpus("groups43")
    log = root / "__cluster_metadata-0" / f"{0:020}.log"
    size = log.stat().st_size
    with log.open("ab") as file:
        file.write(build_batch([SimpleRecord(value=b"\1")], BatchFields(base_offset=555)))
    what = f"{log}: position {size}: offset 555: a varint extends past the end of its record"
    with kafkafs.open(root) as d:
        assert d.cluster().problems == [what]
        problems: list[str] = []
        changes = list(d.cluster_changes(problems.append))
        assert (changes[-1].offset, problems) == (553, [what])
        with pytest.raises(kafkafs.StorageError, match="position"):
            list(d.cluster_changes())
