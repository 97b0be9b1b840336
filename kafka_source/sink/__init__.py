"""The sink: writes the rows of a DataFrame to Kafka, in batches and streams, at least once or exactly once.

Data flow: Spark's Arrow batches -> `records` (columns as records) -> `delivery` -> `produce/native` (`accumulator`
encodes them, `sender` sends them) or `produce/librdkafka` -> brokers. `create_writer` makes Spark's writers,
`batch_start` begins a batch, `exactly_once` and `two_phase/` commit it.
"""
