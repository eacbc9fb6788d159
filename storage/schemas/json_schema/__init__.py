"""Decodes JSON datums: one to JSON values, many to Arrow columns.

`decoder.py` parses and validates, `cost.py` says how much work a schema can make of a value,
`columns.py` makes the columns.
"""
