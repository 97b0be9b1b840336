"""Helpers of a process, without Kafka and Spark: deadlines, event loop, retries, caches, ports, shutdown."""
