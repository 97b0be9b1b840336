"""A Kafka source and sink for PySpark that joins real consumer groups."""
