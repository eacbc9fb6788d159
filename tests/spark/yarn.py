"""Runs YARN on the loopback interface, with Maven's jars of the Hadoop version whose client PySpark
has, downloaded once.

`python -m tests.spark.yarn` downloads them ahead of a test run.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from tests.broker.jvm import cache_dir, copy_dependencies, provide
from tests.broker.kafka import free_ports
from tests.spark.cluster import JVM, LOOPBACK, PACKAGES, SPARK_HOME, Cluster, started

JARS = SPARK_HOME / "jars"
VERSION = next(JARS.glob("hadoop-client-api-*.jar")).stem.rpartition("-")[2]
SERVERS = "org.apache.hadoop.yarn.server"
LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
#: What both daemons and drivers read. Hadoop replaces ${node} by the system property of that name.
CONFIGURATION = {
    "fs.defaultFS": "file:///",
    "yarn.nodemanager.address": "${node}:0",
    "yarn.nodemanager.bind-host": "${node}",
    "yarn.nodemanager.collector-service.address": "${node}:0",
    "yarn.nodemanager.disk-health-checker.enable": "false",  # it fails above 90 % of a disk
    "yarn.nodemanager.env-whitelist": "JAVA_HOME,SPARK_LOCAL_IP",
    "yarn.nodemanager.hostname": "${node}",
    "yarn.nodemanager.localizer.address": "${node}:0",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.nodemanager.resource.memory-mb": "2560",
    "yarn.nodemanager.vmem-check-enabled": "false",  # JVMs reserve much more than they use
    "yarn.nodemanager.webapp.address": "${node}:0",
    "yarn.resourcemanager.am.max-attempts": "1",
    "yarn.resourcemanager.bind-host": LOOPBACK,
    "yarn.resourcemanager.connect.max-wait.ms": "10000",
    "yarn.resourcemanager.connect.retry-interval.ms": "1000",
    "yarn.resourcemanager.hostname": LOOPBACK,
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
    "yarn.resourcemanager.scheduler.class": (
        f"{SERVERS}.resourcemanager.scheduler.fifo.FifoScheduler"
    ),
    "yarn.scheduler.minimum-allocation-mb": "128",
}
PORTS = ("", ".scheduler", ".resource-tracker", ".admin", ".webapp")


def jars() -> Path:
    """Returns the directory of the daemons' jars; downloads missing jars."""
    home = cache_dir() / f"yarn-{VERSION}"
    if not home.is_dir():
        provide(home, _download)
    return home


def _download(target: Path) -> None:
    pom = Path(__file__).with_name("yarn.xml")
    copy_dependencies(pom, target, "fetching YARN's jars with Maven", f"-Dhadoop.version={VERSION}")


def class_path(configuration: Path) -> str:
    """Returns the class path of Hadoop's daemons."""
    own = ("hadoop-client-*", "jcl-over-slf4j-*", "log4j-*", "slf4j-api-*")
    spark_jars = [str(path) for pattern in own for path in sorted(JARS.glob(f"{pattern}.jar"))]
    return ":".join([str(configuration), *spark_jars, f"{jars()}/*"])


def site(properties: Mapping[str, str]) -> str:
    """Returns a file of Hadoop's configuration."""
    lines = [
        f"<property><name>{name}</name><value>{escape(value)}</value></property>"
        for name, value in properties.items()
    ]
    return "\n".join(["<configuration>", *lines, "</configuration>"])


class Yarn(Cluster):
    """A ResourceManager and two NodeManagers, each with an address of its own, so that a
    speculative attempt has another node to run on."""

    executors_exit = False
    configuration: Mapping[str, str] = {
        "spark.executor.instances": "2",
        "spark.executor.memoryOverhead": "1g",  # so that a node has room for one
        "spark.yarn.am.extraJavaOptions": JVM,
        "spark.yarn.am.memory": "256m",
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": LOOPBACK,
        "spark.yarn.jars": f"local:{JARS}/*",
        "spark.yarn.scheduler.heartbeat.interval-ms": "200",
    }

    def start(self) -> None:
        self.master = "yarn"
        self.configuration = {
            **self.configuration,
            "spark.yarn.stagingDir": str(self._directory / "staging"),
        }
        self._write_configuration()
        nodes = [f"127.0.0.{2 + number}" for number in range(2)]
        log = self._start_node("resourcemanager.ResourceManager", LOOPBACK)
        for node in nodes:
            self._start_node("nodemanager.NodeManager", node)
        started(lambda: log.read_text().count(" from NEW to RUNNING") == len(nodes), log)

    def shipping(self, archive: Path, python: str) -> tuple[Sequence[str], Mapping[str, str]]:
        """The driver runs in a container, too, and also imports from the archive."""
        options, environment = super().shipping(archive, python)
        driver = ("--conf", f"spark.yarn.appMasterEnv.PYTHONPATH={PACKAGES}")
        return (
            ("--deploy-mode", "cluster", *driver, *options),
            {**environment, "PYSPARK_DRIVER_PYTHON": python, "PYTHONPATH": ""},
        )

    def _write_configuration(self) -> None:
        for name in ("hadoop", "staging"):
            (self._directory / name).mkdir(parents=True)
        (self._directory / "log4j2.properties").write_text(LOGGING)
        properties = {
            **CONFIGURATION,
            "hadoop.tmp.dir": str(self._directory / "tmp"),
            "yarn.nodemanager.local-dirs": str(self._directory / "local-${node}"),
            "yarn.nodemanager.log-dirs": str(self._directory / "logs-${node}"),
        }
        for name, port in zip(PORTS, free_ports(len(PORTS)), strict=True):
            properties[f"yarn.resourcemanager{name}.address"] = f"{LOOPBACK}:{port}"
        for file in ("core-site.xml", "yarn-site.xml"):
            (self._directory / "hadoop" / file).write_text(site(properties))

    def _start_node(self, daemon: str, address: str) -> Path:
        """Starts a daemon, named by package and class; returns the path of its log."""
        logging = f"-Dlog4j2.configurationFile={self._directory / 'log4j2.properties'}"
        options = ("-Xmx256m", *JVM.split(), f"-Dnode={address}", logging)
        options += ("-cp", class_path(self._directory / "hadoop"))
        name = f"{daemon.partition('.')[2]}-{address}"
        return self._start_daemon(name, ["java", *options, f"{SERVERS}.{daemon}"], address)

    def _popen(
        self,
        output: Path,
        command: Sequence[str],
        environment: Mapping[str, str],
        start_new_session: bool = False,
    ) -> subprocess.Popen[bytes]:
        hadoop = {"HADOOP_CONF_DIR": str(self._directory / "hadoop")}
        return super()._popen(output, command, {**hadoop, **environment}, start_new_session)


if __name__ == "__main__":
    print(jars())
