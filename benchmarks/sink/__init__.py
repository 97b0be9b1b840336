"""Writing with Spark, beside the JVM connector."""
