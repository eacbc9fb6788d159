"""Tests that Spark builds the pods that we describe for Kubernetes, with its own parser and its own
builders of drivers and executors. No cluster takes part."""

from __future__ import annotations

import itertools
import re
import shlex
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from tests.readme import ROOT, SPARK_PAGE

pytestmark = pytest.mark.spark

TEMPLATE = ROOT / "examples" / "kubernetes" / "spark.yaml"
#: What a running driver adds to the configs.
RUNNING = {
    "spark.driver.host": "driver",
    "spark.driver.port": "7078",
    "spark.kubernetes.executor.podNamePrefix": "job",
}


def pods(spark: SparkSession, configs: dict[str, str]) -> list[dict[str, Any]]:
    """Returns the pods of a driver and of its executor."""
    jvm: Any = spark._jvm
    k8s = jvm.org.apache.spark.deploy.k8s
    none = jvm.scala.Option.empty()
    conf = jvm.org.apache.spark.SparkConf(False)
    for name, value in {"spark.app.name": "job", **configs}.items():
        conf.set(name, value)
    client = jvm.io.fabric8.kubernetes.client.KubernetesClientBuilder().build()
    program = k8s.submit.PythonMainAppResource("local:///opt/job.py")
    words = spark.sparkContext._gateway.new_array(jvm.java.lang.String, 0)  # type: ignore[union-attr]
    driver = k8s.submit.KubernetesDriverBuilder().buildFromFeatures(
        k8s.KubernetesConf.createDriverConf(conf, "app", program, "Main", words, none), client
    )
    for name, value in RUNNING.items():
        conf.set(name, value)
    resources = getattr(jvm.org.apache.spark.resource, "ResourceProfile$").__getattr__("MODULE$")
    executor = jvm.org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBuilder()
    built = executor.buildFromFeatures(
        k8s.KubernetesConf.createExecutorConf(conf, "1", "app", none, 0),
        jvm.org.apache.spark.SecurityManager(conf, none, None),
        client,
        resources.getOrCreateDefaultProfile(conf),
    )
    client.close()
    return [_described(jvm, each.pod()) for each in (driver, built)]


def _described(jvm: Any, pod: Any) -> dict[str, Any]:
    """Returns the specification of a pod, with Spark's container as `spark`."""
    as_yaml = jvm.io.fabric8.kubernetes.client.utils.Serialization.asYaml
    specification: dict[str, Any] = yaml.safe_load(as_yaml(pod.pod()))["spec"]
    return {**specification, "spark": yaml.safe_load(as_yaml(pod.container()))}


def test_the_template(spark: SparkSession) -> None:
    comment = "".join(line[2:] for line in TEMPLATE.read_text().splitlines() if line[:1] == "#")
    [command] = re.findall(r"spark-submit (.*?)\.py", comment.replace("\\", " "))
    words = shlex.split(command)
    options = [value for word, value in itertools.pairwise(words) if word == "--conf"]
    configs = dict(option.split("=") for option in options)
    for role in ("driver", "executor"):
        assert configs[f"spark.kubernetes.{role}.podTemplateFile"] == TEMPLATE.name
        configs[f"spark.kubernetes.{role}.podTemplateFile"] = str(TEMPLATE)
    for pod in pods(spark, configs):
        claim = {"claimName": "data-kafka-0", "readOnly": True}
        assert {"name": "data", "persistentVolumeClaim": claim} in pod["volumes"]
        mount = {"name": "data", "mountPath": "/volume", "readOnly": True}
        assert mount in pod["spark"]["volumeMounts"]
        assert pod["spark"]["name"] == "spark"
        assert pod["spark"]["image"] == "IMAGE"
        assert pod["spark"]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert pod["affinity"]["podAffinity"]


def test_the_options_of_volumes(spark: SparkSession) -> None:
    page = SPARK_PAGE.read_text()
    volume = "spark.kubernetes.{driver,executor}.volumes.nfs.logs."
    [rest] = re.findall(rf"`{re.escape(volume)}(.*?)\.\n", page, re.DOTALL)
    named = [part.removeprefix("….") for part in re.findall(r"[\w.…]+=/?\w+", rest)]
    assert len(named) == 4
    configs = {"spark.kubernetes.container.image": "IMAGE"}
    for role in ("driver", "executor"):
        for name, value in (part.split("=") for part in named):
            configs[volume.replace("{driver,executor}", role) + name] = value
    for pod in pods(spark, configs):
        [found] = [each for each in pod["volumes"] if each["name"] == "logs"]
        assert found["nfs"] == {"server": "HOST", "path": "/export"}
        [mount] = [each for each in pod["spark"]["volumeMounts"] if each["name"] == "logs"]
        assert (mount["mountPath"], mount["readOnly"]) == ("/data", True)
