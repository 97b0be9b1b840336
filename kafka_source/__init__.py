"""The connector: what Spark runs in the driver and in executors to read and write the format `kafkagroup`.

People use it by the package `kafkagroup`, which re-exports what is public here. Everything here is internal.
"""
