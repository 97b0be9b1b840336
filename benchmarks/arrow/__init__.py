"""A topic as a polars DataFrame: `arrow.read` beside Python's Kafka clients."""
