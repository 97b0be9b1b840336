"""A topic as a polars DataFrame: `arrow.read` beside what Python's Kafka clients do for it."""
