"""Schemas of the records in Kafka's internal topics, one module for each module of Kafka.

Each module has one text for `messages.parse_schemas`, which documents its syntax.
"""
