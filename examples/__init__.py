"""Runnable examples, for instance `./run python -m examples.batch`.

Most of them start an embedded Kafka if they get no bootstrap servers as their argument.
"""
