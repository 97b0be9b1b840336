"""Runnable examples: `./run python -m examples.batch`, and so on. Each starts its own Kafka, or takes --servers."""
