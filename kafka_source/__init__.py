"""The connector, which Spark runs in the driver and in executors for the format `kafkagroup`.

Users import the package `kafkagroup`, which re-exports the public names. Everything here is internal.
"""
