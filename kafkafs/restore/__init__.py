"""Writes the records of log directories into a running cluster.

`restoring` does it step by step, with what `planning` found that it can do. The cluster is reached
with librdkafka, by `cluster` and `producing`; `state` is the file from which an interrupted restore
continues, and `resuming` finds out what it had written since the last entry there. `groups`
translates the offsets of groups. Only modules of this package import confluent_kafka.
"""
