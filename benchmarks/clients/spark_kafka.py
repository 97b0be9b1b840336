"""Spark: `format("kafka")`, an aggregation over a batch."""

from benchmarks.clients.job import Job, begin, end
from benchmarks.read import sources


def main(job: Job, source: str = sources.JVM) -> None:
    spark = sources.session()

    def count(topic: str) -> tuple[int, int]:
        frame = sources.frame(spark, source, job.servers, topic)
        row = frame.selectExpr("count(*)", "sum(length(value))").first()
        assert row is not None
        return row[0], row[1]

    count(job.small_topic)
    begin()
    end(*count(job.topic))
    spark.stop()


if __name__ == "__main__":
    main(Job.of_arguments())
