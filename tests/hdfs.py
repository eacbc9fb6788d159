"""Runs HDFS on the loopback interface: a name node and a data node, with the jars of YARN."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.broker.jvm import JVM
from tests.broker.kafka import free_ports
from tests.spark.yarn import LOGGING, class_path, site
from tests.waiting import wait_until

SERVER: Final = "org.apache.hadoop.hdfs.server"
#: Address 0 is any free port.
CONFIGURATION: Final = {
    "dfs.replication": "1",
    "dfs.datanode.address": "127.0.0.1:0",
    "dfs.datanode.hostname": "127.0.0.1",
    "dfs.datanode.http.address": "127.0.0.1:0",
    "dfs.datanode.ipc.address": "127.0.0.1:0",
    "dfs.namenode.http-address": "127.0.0.1:0",
    "dfs.namenode.rpc-bind-host": "127.0.0.1",
}


@contextmanager
def hdfs(directory: Path) -> Iterator[str]:
    """Yields the URL of a cluster that keeps its files in `directory`."""
    url = f"hdfs://127.0.0.1:{free_ports(1)[0]}"
    (directory / "conf").mkdir(parents=True)
    (directory / "conf/log4j2.properties").write_text(LOGGING)
    default = {"fs.defaultFS": url, "hadoop.tmp.dir": str(directory / "tmp")}
    (directory / "conf/core-site.xml").write_text(site(default))
    (directory / "conf/hdfs-site.xml").write_text(site(CONFIGURATION))
    run(directory, "namenode.NameNode", "-format", "-nonInteractive").wait()
    with ExitStack() as stack:
        for daemon in ("namenode.NameNode", "datanode.DataNode"):
            process = run(directory, daemon)
            stack.callback(process.wait)
            stack.callback(process.kill)
        log = log_of(directory, "namenode.NameNode")
        wait_until(lambda: "registerDatanode" in log.read_text(), f"no data node: {log}")
        yield url


def run(directory: Path, daemon: str, *arguments: str) -> subprocess.Popen[bytes]:
    own = f"-Djava.io.tmpdir={directory}"
    options = ("-Xmx256m", own, *JVM[:3], "-cp", class_path(directory / "conf"))
    with log_of(directory, daemon).open("ab") as log:
        return subprocess.Popen(
            ["java", *options, f"{SERVER}.{daemon}", *arguments], stdout=log, stderr=log
        )


def log_of(directory: Path, daemon: str) -> Path:
    return directory / f"{daemon}.log"
