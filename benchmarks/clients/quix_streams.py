"""Quix Streams: a function over each value of a StreamingDataFrame."""

from quixstreams import Application  # type: ignore[import-not-found]

from benchmarks.clients.job import Job, begin, end


def main(job: Job) -> None:
    application = Application(
        job.servers, consumer_group=job.new_group(), auto_offset_reset="earliest", loglevel="WARNING"
    )
    records = size = 0

    def count(value: bytes) -> None:
        nonlocal records, size
        records += 1
        size += len(value)

    frame = application.dataframe(application.topic(job.topic, value_deserializer="bytes"))
    frame.update(count)
    # Quix joins its group inside of `run`, without a hook for the assignment.
    begin()
    application.run(count=job.records, collect=False)
    end(records, size)


if __name__ == "__main__":
    main(Job.of_arguments())
