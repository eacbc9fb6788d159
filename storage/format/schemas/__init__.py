"""Fields of the messages that Kafka keeps in its own topics, by the module of Kafka that has them.

Each module has one text for `messages.parse_schemas`, which says how to read it.
"""
