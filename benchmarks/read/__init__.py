"""Benchmarks of reading with Spark, compared with the JVM connector."""
