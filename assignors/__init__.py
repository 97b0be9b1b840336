"""Client-side partition assignors for Kafka consumer groups: pure functions on plain data."""
