"""kafkagroup: `format("kafkagroup")`, the same aggregation as with `format("kafka")`."""

from benchmarks.clients import spark_kafka
from benchmarks.clients.job import Job
from benchmarks.read import sources

if __name__ == "__main__":
    spark_kafka.main(Job.of_arguments(), sources.NATIVE)
