"""Runnable examples, for instance `./run python -m examples.batch`.

Most examples start an embedded Kafka if their argument names no bootstrap servers.
"""
