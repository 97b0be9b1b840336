"""Commits by the program that calls `kafkagroup.arrow.consume`, without Spark and without a checkpoint."""

from kafka_source.commits.policy import CommitPolicy


class ByProgram(CommitPolicy):
    """The caller commits, in one request, the records that it has received."""

    keeps = True
