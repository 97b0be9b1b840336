"""Choose the commit policy of a read. Only this module maps the values of the option `commit` to policies."""

from enum import Enum

from kafka_source.commits.by_driver import ByDriver
from kafka_source.commits.by_program import ByProgram
from kafka_source.commits.by_sink import BySink
from kafka_source.commits.by_tasks import ByTasks
from kafka_source.commits.policy import CommitPolicy
from kafka_source.options import ReadOptions


class Caller(Enum):
    """The kind of reader."""

    STREAM = "a stream of Spark's"
    BATCH = "a batch of Spark's"
    BLOCK = "kafkagroup.pinned"
    PROGRAM = "kafkagroup.arrow.consume"


_OF_STREAM: dict[str | None, type[CommitPolicy]] = {None: ByDriver, "batch": ByDriver, "task": ByTasks, "sink": BySink}
_OF_BATCH: dict[str | None, type[CommitPolicy]] = {None: CommitPolicy, "none": CommitPolicy, "task": ByTasks}


def policy_of(options: ReadOptions, caller: Caller) -> CommitPolicy:
    """Return a new commit policy for a read."""
    if not options.in_group:
        return CommitPolicy(options)
    if caller is Caller.PROGRAM:
        return ByProgram(options)
    if caller is Caller.BLOCK:
        return ByDriver(options)
    return (_OF_STREAM if caller is Caller.STREAM else _OF_BATCH)[options.commit](options)
