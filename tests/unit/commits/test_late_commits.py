"""Which of the group's offsets are committed again after a commit that may have been handled late."""

from hypothesis import given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.commits.late_commits import LateCommits
from kafka_source.model.commits import CommitOffset

TP = TopicPartition("orders", 0)
IDS = st.sampled_from([None, "an id"])
ENTRIES = st.builds(
    CommitOffset, st.integers(0, 4), metadata=st.sampled_from(["", "a", "a rewound", "b"]), topic_id=IDS
)


@given(st.lists(ENTRIES, max_size=4), ENTRIES, IDS)
def test_only_an_entry_of_an_own_commit_is_replaced_and_only_by_the_last_one_of_the_topic(
    own: list[CommitOffset], has: CommitOffset, topic_id: str | None
) -> None:
    commits = LateCommits(30)
    for entry in own:
        commits.add({TP: entry}, 0)
    last = own[-1] if own and own[-1].topic_id == topic_id else CommitOffset(0)
    is_own = has.metadata and (has.offset, has.metadata) in [(one.offset, one.metadata) for one in own]
    again = commits.set_back({TP: has}, {} if topic_id is None else {TP.topic: topic_id})
    assert again == ({TP: last.offset} if is_own and has.offset < last.offset else {})


def test_partitions_are_looked_at_until_no_request_is_on_its_way_and_once_more_then() -> None:
    commits, looks = LateCommits(30), []
    commits.add({TP: CommitOffset(5, metadata="a")}, 0)
    for at in range(80):
        if commits.due(at / 2):
            looks.append(at / 2)
            commits.looked(at / 2)
    assert looks == list(range(31))
