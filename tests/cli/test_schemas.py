"""Tests of `kafkafs schemas`."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cli.results import Corpus, Kafkafs, lines_of, rows_of, stderr_of


def test_a_table(kafkafs: Kafkafs, corpus: Corpus) -> None:
    head, *rows = lines_of(kafkafs("schemas", corpus("schemas43"), "s-json-value", "s-refs-value"))
    assert head.split() == ["SUBJECT", "VERSION", "ID", "TYPE", "DELETED", "REFERENCES"]
    assert [row.split() for row in rows] == [
        ["s-json-value", "1", "16", "JSON", "soft", "-"],
        ["s-json-value", "2", "17", "JSON", "-", "-"],
        [
            *("s-refs-value", "1", "8", "AVRO", "-"),
            *("shop.v1.common.Person/1,", "shop.v1.common.Money/1"),
        ],
    ]


def test_usage(kafkafs: Kafkafs, corpus: Corpus) -> None:
    _, *rows = lines_of(kafkafs("schemas", "--usage", corpus("schemas43"), "s-avro-value"))
    assert [re.split(" {2,}", row)[-1] for row in rows] == [
        "s-avro value 61",
        "s-avro value 56, s-records value 10",
    ]


def test_the_text_of_a_deleted_schema(kafkafs: Kafkafs, corpus: Corpus) -> None:
    result = kafkafs("schemas", "--deleted", "--text", corpus("schemas43"), "s-hard-value")
    first, second = lines_of(result)
    assert json.loads(first)["name"] == json.loads(second)["name"] == "Shorts_hard"


def test_json(kafkafs: Kafkafs, corpus: Corpus) -> None:
    rows = rows_of(kafkafs("schemas", "--json", corpus("schemas43")))
    assert len(rows) == 23
    assert {row["deleted"] for row in rows} == {"none", "soft", "hard"}
    assert all(row["file"].endswith(".log") for row in rows)


def test_wrong_use(kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path) -> None:
    root = corpus("schemas43")
    result = kafkafs("schemas", root, "s-avro-valu")
    assert "no subject s-avro-valu; did you mean s-avro-value" in stderr_of(result)
    assert kafkafs("schemas", "--text", "--json", root).exit_code == 2
    assert kafkafs("schemas", "--usage", root, "-o", tmp_path / "new").exit_code == 2
    (tmp_path / "file").touch()
    result = kafkafs("schemas", "export", root, "-o", tmp_path)
    assert "is not empty; choose a new directory" in stderr_of(result, 2)
    assert kafkafs("schemas", "export", root, "-o", f"{root}/s-avro-0/new").exit_code == 2


def test_no_registry(kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path) -> None:
    result = kafkafs("schemas", "export", corpus("kafka39"), "-o", tmp_path / "new")
    assert "nothing is written" in stderr_of(result, 0)
    assert not (tmp_path / "new").exists()
    result = kafkafs("schemas", corpus("kafka39"))
    assert "no schemas are recorded in these directories" in stderr_of(result, 0)


class Registry(http.server.BaseHTTPRequestHandler):
    """Accepts what a registry would: a version only if all that it refers to is there."""

    requests: list[tuple[str, str, Any]]
    known: set[tuple[str, int]]

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body: Any = json.loads(self.rfile.read(size)) if size else None
        self.requests.append((self.command, self.path, body))
        references = (body or {}).get("references", [])
        is_known = all((each["subject"], each["version"]) in self.known for each in references)
        if self.command == "POST":
            self.known.add((self.path.split("/")[2].replace("%2F", "/"), body["version"]))
        self.send_response(200 if is_known else 422)
        self.end_headers()
        self.wfile.write(b"{}")

    do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - the names that http.server calls

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


@pytest.mark.parametrize("deleted", [False, True])
def test_an_export_is_registered_in_order(
    kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path, deleted: bool
) -> None:
    options = ["--deleted"] if deleted else []
    result = kafkafs("schemas", "export", *options, corpus("schemas43"), "-o", tmp_path / "new")
    assert stderr_of(result, 0) == ""
    requests: list[tuple[str, str, Any]] = []
    handler = type("Handler", (Registry,), {"requests": requests, "known": set()})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            url = f"http://127.0.0.1:{server.server_address[1]}"
            subprocess.run(["sh", tmp_path / "new" / "import.sh", url], check=True, timeout=250)
        finally:
            server.shutdown()
    versions = rows_of(kafkafs("schemas", "--json", corpus("schemas43")))
    sent = {
        (path.split("/")[2].replace("%2F", "/"), body["version"]): (body["id"], body["schema"])
        for method, path, body in requests
        if method == "POST"
    }
    assert sent == {
        (row["subject"], row["version"]): (row["id"], row["schema"])
        for row in versions
        if deleted or row["deleted"] != "hard"
    }
    softly = [path for method, path, _ in requests if method == "DELETE"]
    assert sorted(softly) == [
        f"/subjects/{row['subject']}/versions/{row['version']}"
        for row in versions
        if row["deleted"] == "soft"
    ]
    assert requests[0] == ("PUT", "/mode?force=true", {"mode": "IMPORT"})
    assert requests[-1] == ("PUT", "/mode", {"mode": "READWRITE"})
