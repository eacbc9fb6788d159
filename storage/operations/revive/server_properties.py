"""The new node's server.properties."""

from __future__ import annotations

from collections.abc import Iterator

from ...format.files.properties import escaped_value
from ...format.messages.metadata import RecordType
from ...metadata.image import ALL_BROKERS
from .request import MAX_PORT, Revive
from .sources import SourceCluster

_INT_MAX = 2**31 - 1
# The topic of each coordinator, and the broker config for the number of its partitions, by which
# groups and transactions are spread over them.
_COUNTS = {
    "__consumer_offsets": "offsets.topic.num.partitions",
    "__transaction_state": "transaction.state.log.num.partitions",
    "__share_group_state": "share.coordinator.state.topic.num.partitions",
}
_SINGLE_NODE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


def controller_port(port: int) -> int:
    """Returns the port of the controller, beside that for clients."""
    return port + 1 if port < MAX_PORT else port - 1


def server_properties(cluster: SourceCluster, request: Revive, data_path: str) -> str:
    """Returns the text of the file, without its first line."""
    lines = [*_node(cluster, request, data_path), "", *_kept(cluster), "", *_nothing_expires()]
    if cluster.settings.of(RecordType.ACCESS_CONTROL_ENTRY):
        lines += ["", *_authorizer()]
    return "".join(f"{line}\n" for line in lines)


def _node(cluster: SourceCluster, request: Revive, data_path: str) -> Iterator[str]:
    host, port = request.listener
    host = f"[{host}]" if ":" in host else host
    controller = controller_port(port)
    node = cluster.node_id
    yield "process.roles=broker,controller"
    yield f"node.id={node}"
    yield f"controller.quorum.voters={node}@{host}:{controller}"
    yield f"listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}"
    yield f"advertised.listeners=PLAINTEXT://{host}:{port}"
    yield "controller.listener.names=CONTROLLER"
    yield "inter.broker.listener.name=PLAINTEXT"
    yield "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    yield f"log.dirs={escaped_value(data_path)}"


def _kept(cluster: SourceCluster) -> Iterator[str]:
    yield "# Groups and transactions are in these partitions: never change the numbers."
    for topic in cluster.topics:
        if topic.name in _COUNTS:
            yield f"{_COUNTS[topic.name]}={len(topic.partitions)}"
    for name, value in _SINGLE_NODE.items():
        yield f"{name}={value}"
    isr = cluster.broker_configs.get(ALL_BROKERS, {}).get("min.insync.replicas")
    if isr is not None:
        yield f"min.insync.replicas={escaped_value(isr)}"


def _nothing_expires() -> Iterator[str]:
    yield "# The old server.properties is unknown. So that nothing is deleted at once, only the"
    yield "# configs of topics apply; replace these lines with your own."
    yield "log.retention.ms=-1"
    yield f"offsets.retention.minutes={_INT_MAX}"
    yield f"transactional.id.expiration.ms={_INT_MAX}"


def _authorizer() -> Iterator[str]:
    yield "# There are ACLs. The listener has no authentication: who reaches it may do everything."
    yield "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    yield "super.users=User:ANONYMOUS"
