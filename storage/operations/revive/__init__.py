"""Creates a directory on which a new single-node Kafka starts with what log directories hold."""
