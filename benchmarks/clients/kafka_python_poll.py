"""kafka-python: `KafkaConsumer.poll`."""

from kafka import ConsumerRebalanceListener, KafkaConsumer

from benchmarks.clients.job import Job, begin, end

MESSAGES_PER_CALL = 10_000


class Listener(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked):
        pass

    def on_partitions_assigned(self, assigned):
        if assigned:
            begin()


def main(job: Job) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=job.servers, group_id=job.new_group(), auto_offset_reset="earliest",
        max_poll_records=MESSAGES_PER_CALL,
    )  # fmt: skip
    consumer.subscribe([job.topic], listener=Listener())
    records = size = 0
    while records < job.records:
        for messages in consumer.poll(1000).values():
            records += len(messages)
            size += sum(len(message.value) for message in messages)
    end(records, size)
    consumer.close()


if __name__ == "__main__":
    main(Job.of_arguments())
