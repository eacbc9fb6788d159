"""The promises of SEMANTICS.md about groups."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.building import BatchFields, build_batch
from tests.group_records import commit
from tests.mounted.conftest import Mounting
from tests.mounted.promises import promise
from tests.storage.test_groups import answered


@pytest.fixture
def data(tmp_path: Path, corpus: Callable[[str], Path]) -> Path:
    return Path(shutil.copytree(corpus("groups43"), tmp_path / "data"))


@promise(
    "`.kafkafs/groups` has a directory for each group, and in it one for each topic of which the"
    " group has committed an offset. Names are those of section 14."
)
@promise(
    "`PARTITION` contains the committed offset and a newline, and its modification time is that of"
    " the commit."
)
@promise(
    "`PARTITION.unread.jsonl` contains what `records.jsonl` of the partition contains from the"
    " committed offset on."
)
@promise(
    "`status.json` is a JSON object with the group's type, state, members, assignments, offsets and"
    " lags, and with what is damaged or unknown in the logs that record it."
)
@promise("A new commit is shown by the next lookup.")
def test_groups(data: Path, mount: Mounting) -> None:
    point = mount(data).point
    groups = point / ".kafkafs" / "groups"
    expected = [row for row in answered("groups.jsonl") if row["topic"] is not None]
    assert {name.replace("%2F", "/") for name in os.listdir(groups)} == {
        row["group"] for row in expected
    }
    for row in expected:
        directory = groups / row["group"].replace("/", "%2F") / row["topic"]
        file = directory / str(row["partition"])
        assert file.read_text() == f"{row['offset']}\n"
        assert os.getxattr(file, "user.kafka.lag") == str(row["lag"]).encode()
    walker = groups / "billing-walker"
    assert sorted(os.listdir(walker)) == ["main", "status.json"]
    assert os.stat(walker / "main" / "0").st_mtime_ns == 1795474360795 * 1_000_000
    whole = (point / "main" / "0" / "records.jsonl").read_bytes().splitlines()
    unread = (walker / "main" / "0.unread.jsonl").read_bytes().splitlines()
    assert unread == [line for line in whole if json.loads(line)["offset"] >= 136]
    status = json.loads((groups / "billing-stable" / "status.json").read_bytes())
    assert (status["type"], status["state"], status["problems"]) == ("Classic", "Stable", [])
    assert [member["assignment"] for member in status["members"]] == [
        ["grown-0", "grown-1", "main-2"],
        ["main-0", "main-1"],
    ]
    assert {(row["topic"], row["partition"]): row["lag"] for row in status["offsets"]} == {
        (row["topic"], row["partition"]): row["lag"]
        for row in expected
        if row["group"] == "billing-stable"
    }
    batch = build_batch([commit("billing-walker", "main", 0, 200)], BatchFields(base_offset=62))
    with (data / "__consumer_offsets-1" / "00000000000000000000.log").open("ab") as log:
        log.write(batch)
    assert (walker / "main" / "0").read_text() == "200\n"
