"""Who gives a batch to a log, which decides what is checked of it (Kafka's ``AppendOrigin``)."""

from __future__ import annotations

from enum import Enum


class Origin(Enum):
    """CLIENT: a producer; everything is checked, and offsets are assigned.
    COORDINATOR: a transaction's end or a group's offsets; no sequence numbers.
    REPLICATION: batches that a leader took; offsets as given, producers only warned about.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"
