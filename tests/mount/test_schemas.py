"""`.kafkafs/schemas` and `.kafkafs/subjects` in the tree, without a mount."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkafs.mount.node import File
from kafkafs.mount.tree import Tree
from kafkafs.mount.vfs.errnos import NoSuchName, Stale
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.schemas import registry_of
from tests import answers
from tests.building import BatchFields, build_batch
from tests.logs import write_topic
from tests.mount.nodes import directory_of, file_of
from tests.mount.test_groups import names, read
from tests.registry_records import record, schema

SCHEMAS = ".kafkafs/schemas"
SUBJECTS = ".kafkafs/subjects"


@pytest.fixture
def tree(corpus: Callable[[str], Path]) -> Tree:
    return Tree(Engine(str(corpus("schemas43"))))


@pytest.fixture(scope="module")
def expected() -> Any:
    return json.loads((answers.directory("schemas43") / "registry.json").read_text())


def test_schemas_by_id(tree: Tree, expected: Any) -> None:
    extensions = {"AVRO": "avsc", "PROTOBUF": "proto", "JSON": "json"}
    texts = {
        f"{number}.{extensions[schema['schemaType']]}": schema["schema"]
        for number, schema in expected["schemas"].items()
    }
    gone = {f"{number}.avsc": text for number, text in expected["gone"].items()}
    found = {
        name: read(file_of(tree, f"{SCHEMAS}/{name}")).decode() for name in names(tree, SCHEMAS)
    }
    assert found == {**texts, **gone}


def test_versions_of_subjects(tree: Tree, expected: Any) -> None:
    for subject, versions in expected["subjects"].items():
        name = subject.replace("/", "%2F")
        assert names(tree, f"{SUBJECTS}/{name}") == list(versions)
        for number, version in versions.items():
            text = expected["schemas"][str(version["id"])]["schema"]
            file = file_of(tree, f"{SUBJECTS}/{name}/{number}")
            assert read(file).decode() == text
            assert file.fixed().xattrs()["user.kafka.id"] == b"%d" % version["id"]


def test_a_deleted_version_says_so(tree: Tree) -> None:
    fixed = file_of(tree, f"{SUBJECTS}/s-hard-value/2").fixed()
    assert fixed.xattrs()["user.kafka.deleted"] == b"hard"
    assert "user.kafka.references" not in fixed.xattrs()
    version = registry_of(tree.catalog.engine).of_subject("s-hard-value")[1]
    assert fixed.attributes().mtime_ns == version.timestamp * 1_000_000


def test_inode_numbers_lead_back(tree: Tree) -> None:
    paths = (f"{SCHEMAS}/7.avsc", f"{SUBJECTS}/s-avro-value", f"{SUBJECTS}/s-avro-value/2")
    for path in (SCHEMAS, SUBJECTS, *paths):
        node = tree.resolve(path)
        assert type(tree.node(node.inode)) is type(node)
    again = tree.node(tree.resolve(paths[0]).inode)
    assert isinstance(again, File)
    assert read(again) == read(file_of(tree, paths[0]))
    with pytest.raises(Stale):
        tree.node(tree.resolve(paths[2]).inode + 1000)


def test_names_that_do_not_exist(tree: Tree) -> None:
    for path in (f"{SCHEMAS}/99.avsc", f"{SCHEMAS}/7.json", f"{SUBJECTS}/nobody/1"):
        with pytest.raises(NoSuchName):
            tree.resolve(path)
    with pytest.raises(NoSuchName, match="did you mean"):
        tree.resolve(f"{SUBJECTS}/s-avro-valu")


def test_without_a_registry(corpus: Callable[[str], Path]) -> None:
    tree = Tree(Engine(str(corpus("kafka39"))))
    assert not {"schemas", "subjects"} & set(names(tree, ".kafkafs"))


def test_hostile_names_and_contexts(tmp_path: Path) -> None:
    subjects = ["../../etc/passwd", "a\nb", "", ".", ":.other:s", "x" * 300]
    records = [schema(subject, 1, n, f'"t{n}"') for n, subject in enumerate(subjects, 1)]
    batches = [build_batch([each], BatchFields(base_offset=n)) for n, each in enumerate(records)]
    write_topic(tmp_path, batches, topic="_schemas")
    tree = Tree(Engine(str(tmp_path)))
    found = names(tree, SUBJECTS)
    assert len(found) == len(subjects)
    assert all("/" not in name and "\n" not in name and len(name) <= 255 for name in found)
    assert {read(file_of(tree, f"{SUBJECTS}/{name}/1")) for name in found} == {
        b'"t%d"' % n for n in range(1, len(subjects) + 1)
    }
    assert ":.other:5.avsc" in names(tree, SCHEMAS)


def test_what_the_registry_adds_is_seen(tmp_path: Path) -> None:
    write_topic(tmp_path, [build_batch([schema("s", 1, 1)])], topic="_schemas")
    tree = Tree(Engine(str(tmp_path)))
    assert names(tree, f"{SUBJECTS}/s") == ["1"]
    added = [schema("s", 2, 2, '"int"'), record({"keytype": "NOOP", "magic": 0}, None)]
    log = tmp_path / "_schemas-0" / f"{0:020}.log"
    with log.open("ab") as file:
        file.write(build_batch(added, BatchFields(base_offset=1)))
    directory = directory_of(tree, f"{SUBJECTS}/s")
    assert [entry.name for entry in directory.list()] == ["1", "2"]
