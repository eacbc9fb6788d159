"""The files in examples/ that other programs read: systemd's units, Kubernetes' resources."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.unchanged import ROOT

EXAMPLES = ROOT / "examples"
#: Where the units expect the program.
PROGRAM = "/usr/local/bin/kafkafs"
#: The units by the names under which systemd loads them: templates need an instance.
UNITS = {
    "mnt-kafka.mount": "mnt-kafka.mount",
    "kafkafs@.service": "kafkafs@orders.service",
    "kafkafs-verify@.service": "kafkafs-verify@var-lib-kafka-data.service",
    "kafkafs-backup.service": "kafkafs-backup.service",
    "kafkafs-backup.timer": "kafkafs-backup.timer",
    "kafkafs-verify@.timer": "kafkafs-verify@var-lib-kafka-data.timer",
}


def test_every_unit_is_checked() -> None:
    assert {path.name for path in (EXAMPLES / "systemd").iterdir()} == UNITS.keys()


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    assert shutil.which("systemd-analyze"), "tests/setup.sh installs systemd"
    program = tmp_path / "kafkafs"
    program.touch(mode=0o755)
    for name in UNITS:
        text = (EXAMPLES / "systemd" / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace(PROGRAM, str(program)), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(tmp_path / unit for unit in UNITS.values())],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) not in done.stderr


@pytest.mark.parametrize("name", ["sidecar.yaml", "spark.yaml", "verify.yaml"])
def test_kubernetes_accepts_the_resources(name: str) -> None:
    text = (EXAMPLES / "kubernetes" / name).read_text(encoding="utf-8")
    resources: list[Any] = list(yaml.safe_load_all(text))
    assert resources
    for resource in resources:
        kubernetes_validate.validate(resource, "1.34", strict=True)


def test_kubernetes_refuses_an_unknown_field() -> None:
    text = (EXAMPLES / "kubernetes" / "verify.yaml").read_text(encoding="utf-8")
    resource = yaml.safe_load(text.replace("backoffLimit", "backofLimit"))
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(resource, "1.34", strict=True)
