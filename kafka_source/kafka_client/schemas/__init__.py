"""Schemas of messages that kafka-python does not have, in the form in which Kafka and it describe theirs."""
