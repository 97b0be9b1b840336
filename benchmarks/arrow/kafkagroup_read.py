"""kafkagroup: `polars.DataFrame(arrow.read(topic))`."""

import polars as pl

from benchmarks.arrow.frames import COLUMNS, done
from benchmarks.clients.job import Job, begin
from kafkagroup import arrow


def main(job: Job) -> None:
    begin()
    with arrow.read(job.topic, {"bootstrap.servers": job.servers}, columns=COLUMNS) as stream:
        done(pl.DataFrame(stream))


if __name__ == "__main__":
    main(Job.of_arguments())
