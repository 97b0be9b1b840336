"""What the checks allow, and why. Each allowance has a counter, and a story that fails without it (`stories.jsonl`).

Delete an allowance when the fault that it follows from has become impossible, and so no story needs the allowance.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Allowance:
    """An exception to a rule.

    Attributes:
        name: What is allowed.
        follows_from: The fault, or the property of Kafka, that it follows from.
        excuses: The batches, partitions and times to which the allowance applies.
        user: The line of `docs/faults.md` that says what a user sees; empty: a user sees nothing.
    """

    name: str
    follows_from: str
    excuses: str
    user: str = ""


# ---- offsets

ON_ITS_WAY = Allowance(
    "a commit of another application that names no topic",
    "its topic was created again while the request was under way",
    "5 s after the creation",
    "F24",
)
TRUNCATED = Allowance(
    "an offset behind the end of a log that was truncated", "a truncation", "up to the log's end before it", "F27"
)
SKIPPED = Allowance(
    "a rewind beyond the records that are written",
    "a truncation or another rewind, after the program was given the offset",
    "up to the offset",
    "F23",
)
TIMED_OUT = Allowance(
    "an offset of records whose transaction has timed out",
    "a transaction that times out after the decision about it",
    "what it has written",
    "F9",
)
LATE_COMMIT = Allowance(
    "an offset that a late commit sets back",
    "a request whose connection was given up, or an attempt that outlives its job",
    "commits without a transaction",
    "I5",
)
BEGINS_AGAIN = Allowance(
    "an offset that goes back to the begin of a new topic",
    "brokers before 4.1 do not tell of which topic an offset without a note is",
    "the first record of a topic that was created again",
    "F24",
)
STEPS_BACK = Allowance(
    "an offset or a plan that goes back to where a log diverges",
    "a truncation",
    "once for each query after each loss, where the log has lost records",
    "F27",
)
STOOD_STILL = Allowance(
    "a plan before the group's offset, of a driver that was removed or replaced while it stood still",
    "a frozen process, or a coordinator that answers nothing",
    "40 s after that",
    "F19",
)

UNSEEN = Allowance(
    "a plan beyond the boundaries of a halt that its query has not seen",
    "the coordinator of the halts does not answer",
    "triggers that began before the halt, or have waited 5 s for it",
    "F48",
)

# ---- members, and records that are written twice

REMOVED = Allowance(
    "a member that is removed",
    "a fault that loses members, or a batch that failed: its slots stay up to `max.poll.interval.ms`",
    "130 s after it",
    "F19",
)
AFTER_REMOVAL = Allowance(
    "a record twice, after a member was removed",
    "a batch that was not committed",
    "planned 40 s before or since",
    "F19",
)
AFTER_END = Allowance(
    "a record twice, after a query has ended",
    "a batch that was not committed",
    "planned 40 s before or since, or taken again since",
    "I5",
)
AFTER_SET_BACK = Allowance(
    "a record twice, after the group was set back", "a late commit, or a loss", "planned 40 s before or since", "I5"
)
OF_ANOTHER = Allowance(
    "a record twice, that another application repeats",
    "it has died, was removed, or leads the group and gives a partition away that a read claims",
    "planned 40 s before or since",
)
BEGUN_LATE = Allowance(
    "a transaction that a late request has begun",
    "before `transaction.version` 2 an AddPartitionsToTxn that is handled after the commit begins the next transaction",
    "no records; the next batch aborts it",
)
DELETED = Allowance(
    "a record of a deleted topic twice, with commit=sink",
    "a deleted topic takes along the offsets that fence the sink of a batch under way",
    "planned 40 s before the deletion",
    "F24",
)
BY_NAME = Allowance(
    "a record of a topic that was created again twice, in an at-least-once sink",
    "brokers before 3.1 return records by the topic's name, and an attempt notices this after it has written them",
    "topics that were created again",
    "F24",
)
OUT_OF_ORDER = Allowance(
    "a lost batch behind what others have read on",
    "a decided transaction that has timed out",
    "all of the output",
    "F9",
)

# ---- errors with which a query or a batch ends

NO_BROKER = Allowance("BootstrapError", "no broker answers", "130 s after the last fault", "F36")
DATA_LOSS = Allowance("DataLossError", "records of the source are gone", "failOnDataLoss, 130 s after the loss", "F25")
TAKEN_LATE = Allowance(
    "FENCED_INSTANCE_ID, by a process that is dead, or by the query itself",
    "a JoinGroup is handled after a later JoinGroup with the same instance id",
    "its instance id",
    "F21",
)
UNRELEASED = Allowance(
    "UNRELEASED_INSTANCE_ID",
    "the session of a killed member begins anew with each coordinator, or another driver of the query lives",
    "a minute of sessions, or 130 s after two drivers lived",
    "F21",
)
REWIND_IN_GROUP = Allowance(
    "INCONSISTENT_GROUP_PROTOCOL of a batch", "a program that rewinds is in the group", "130 s after it", "F23"
)
BATCH_FENCED = Allowance(
    "FencedError of a batch", "its tasks come late, or an attempt has committed", "130 s after a fault", "F19"
)
STOPS = Allowance("FencedError with group.on.lost=stop", "a member was removed", "130 s after it", "F19")
TRANSACTIONS_LOST = Allowance(
    "LostTransactionsError", "decided transactions that have timed out", "exactly these", "F9"
)
JOB_FAILED = Allowance("an error of a job that may be repeated", "any fault", "130 s after it", "F12")

ALLOWANCES = tuple(one for one in globals().values() if isinstance(one, Allowance))
RARE = frozenset(
    {
        ON_ITS_WAY,
        SKIPPED,
        TIMED_OUT,
        STOOD_STILL,
        AFTER_SET_BACK,
        OUT_OF_ORDER,
        TAKEN_LATE,
        UNRELEASED,
        TRANSACTIONS_LOST,
    }
)
"""The allowances without a story: none of the seeds 0 to 146 needs these."""
