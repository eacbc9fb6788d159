"""The origin of an append, which determines how batches are validated (``AppendOrigin``)."""

from __future__ import annotations

from enum import Enum


class AppendOrigin(Enum):
    """CLIENT: a producer; everything is validated, and offsets are assigned.
    COORDINATOR: a transaction marker or a group's offsets, without sequence numbers.
    REPLICATION: batches that a leader accepted; offsets kept, epochs and sequences unchecked.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"
