"""Process-level helpers that know neither Kafka nor Spark: deadlines, the event loop thread, back-off, shutdown."""
