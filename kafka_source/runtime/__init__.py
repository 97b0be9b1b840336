"""Helpers of a process that know neither Kafka nor Spark: deadlines, event loop, retries, caches, ports, shutdown."""
