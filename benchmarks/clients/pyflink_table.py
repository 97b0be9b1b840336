"""PyFlink: an aggregation in SQL over the Kafka table source, as a bounded job.

Flink's SQL has no function for the length of bytes, so values, which are ASCII here, are read as strings.
"""

import os

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

from benchmarks.clients.job import Job, begin, end


def main(job: Job) -> None:
    table = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    table.get_config().set("parallelism.default", "2")
    table.get_config().set("pipeline.jars", f"file://{os.environ['FLINK_KAFKA_JAR']}")
    for topic in (job.small_topic, job.topic):
        table.execute_sql(f"""
            CREATE TABLE `{topic}` (v STRING) WITH (
                'connector' = 'kafka', 'properties.bootstrap.servers' = '{job.servers}', 'topic' = '{topic}',
                'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'format' = 'raw'
            )
        """)
    _count(table, job.small_topic)
    begin()
    end(*_count(table, job.topic))


def _count(table: TableEnvironment, topic: str) -> tuple[int, int]:
    query = f"SELECT COUNT(*), SUM(CAST(CHAR_LENGTH(v) AS BIGINT)) FROM `{topic}`"
    with table.execute_sql(query).collect() as rows:
        (row,) = rows
    return row[0], row[1]


if __name__ == "__main__":
    main(Job.of_arguments())
