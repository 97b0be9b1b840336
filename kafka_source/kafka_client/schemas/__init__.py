"""Schemas of messages that kafka-python lacks, in the JSON format of Kafka's own message definitions."""
