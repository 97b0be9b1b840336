"""The command line, `kafkagroup`."""

from kafka_source.cli.main import app

__all__ = ["app"]
