"""Benchmarks of writing with Spark, compared with the JVM connector."""
