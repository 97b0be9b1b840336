"""Reading: Spark's built-in Kafka source against ours."""
