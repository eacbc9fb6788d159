"""The promises of SEMANTICS.md about schemas."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import kafkafs
from tests.building import BatchFields, build_batch
from tests.mounted.conftest import Mounting
from tests.mounted.promises import promise
from tests.registry_records import schema


@promise(
    "`.kafkafs/schemas` has a file with the text of each schema on the disk, named after its id,"
    " with `.avsc`, `.proto` or `.json`; an id in another context than the default one follows"
    " that, as in `:.staging:7.avsc`."
)
@promise(
    "`.kafkafs/subjects` has a directory for each subject, named by the rules of section 14, and in"
    " it a file for each version. Its modification time is that of the version's record."
)
@promise("A version that the registry adds is shown by the next lookup.")
def test_schemas(tmp_path: Path, corpus: Callable[[str], Path], mount: Mounting) -> None:
    data = Path(shutil.copytree(corpus("schemas43"), tmp_path / "data"))
    with kafkafs.open(data) as d:
        versions, end = d.schemas(), d["_schemas", 0].end_offset
    about = mount(data).point / ".kafkafs"
    schemas, subjects = about / "schemas", about / "subjects"
    assert sorted(os.listdir(schemas), key=lambda name: int(name.split(".")[0])) == [
        *(f"{number}.avsc" for number in range(1, 14)),
        *("14.proto", "15.proto", "16.json", "17.json"),
    ]
    for each in versions:
        file = subjects / each.subject.replace("/", "%2F") / str(each.version)
        assert file.read_text() == each.schema.text
        assert os.stat(file).st_mtime_ns == each.timestamp * 1_000_000
        assert os.getxattr(file, "user.kafka.deleted") == each.deletion.encode()
        [by_id] = schemas.glob(f"{each.schema.id}.*")
        assert by_id.read_text() == each.schema.text
    added = [schema("s-avro-value", 3, 99), schema(":.staging:new", 1, 7)]
    [log] = (data / "_schemas-0").glob("*.log")
    with log.open("ab") as output:
        output.write(build_batch(added, BatchFields(base_offset=end)))
    assert (subjects / "s-avro-value" / "3").read_text() == '"string"'
    assert (subjects / ":.staging:new" / "1").exists()
    assert (schemas / ":.staging:7.avsc").read_text() == '"string"'
