"""Kafka's words for what the metadata records: configs, quotas, ACLs, endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from ..format.messages.metadata import ResourceType
from .image import AccessControlEntry, Endpoint, QuotaEntity

#: In place of the value of a config that may be a secret, as Kafka prints passwords.
HIDDEN: Final = "[hidden]"
# The ends of the names of configs of type PASSWORD, which a listener's prefix may precede. A plugin
# has configs of its own, which may not be in lower case.
_SECRET: Final = (
    *("password", "passphrase", "secret", "secret.key", "master.key", "sasl.jaas.config"),
    *("ssl.keystore.key", "ssl.truststore.certificates", "ssl.keystore.certificate.chain"),
)


def shown_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """Returns configs for display: HIDDEN in place of values that may be secrets."""
    return {
        name: HIDDEN if name.lower().endswith(_SECRET) else configs[name]
        for name in sorted(configs)
    }


def resource_word(kind: int) -> str:
    """Returns the word for the resources that a config of this ResourceType belongs to."""
    known = {int(each): each.name.lower().replace("_", "-") for each in ResourceType}
    return known.get(kind, f"resource-type-{kind}")


def resource_text(kind: int, name: str) -> str:
    """Returns how people name a resource with configs."""
    if kind == ResourceType.BROKER:
        return f"broker {name}" if name else "all brokers"
    return f"{resource_word(kind)} {name}"


def number_json(value: float) -> float | str:
    """Returns a quota's value; as Jackson does, the word for one that JSON has no number for."""
    return (
        value if isfinite(value) else repr(value).replace("nan", "NaN").replace("inf", "Infinity")
    )


def number_text(value: float) -> str:
    """Returns a quota's value, without a fraction if it has none."""
    return str(int(value)) if value.is_integer() else str(number_json(value))


def entity_text(entity: QuotaEntity) -> str:
    """Returns how people name the entity of a quota."""
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity)


def acl_text(acl: AccessControlEntry) -> str:
    """Returns an ACL as a sentence without a verb: `ALLOW User:a READ on TOPIC orders`."""
    pattern = "" if acl.pattern_type == "LITERAL" else f" ({acl.pattern_type})"
    host = "" if acl.host == "*" else f" from {acl.host}"
    return (
        f"{acl.permission} {acl.principal}{host} {acl.operation} on"
        f" {acl.resource_type} {acl.resource_name}{pattern}"
    )


def acl_json(acl: AccessControlEntry) -> dict[str, Any]:
    return {
        "resourceType": acl.resource_type,
        "resourceName": acl.resource_name,
        "patternType": acl.pattern_type,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission": acl.permission,
    }


def endpoint_text(endpoint: Endpoint) -> str:
    """Returns an endpoint as `LISTENER://host:port`, as in `advertised.listeners`."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"
