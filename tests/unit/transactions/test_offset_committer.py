"""The name of the transactional id with which members commit offsets, and users who may not use one."""

import pytest

from assignors import TopicPartition
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import AuthenticationError, InvalidConfigurationError
from kafka_source.transactions.offset_committer import (
    commits_plainly_after,
    transactional_id_of,
    was_without_transactions,
)

REFUSED = AuthenticationError("refused", code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def test_groups_and_topics_whose_names_join_to_one_text_have_different_ids() -> None:
    ids = [
        transactional_id_of("a", [TopicPartition("b-c", 0)]),
        transactional_id_of("a-b", [TopicPartition("c", 0)]),
        transactional_id_of("a", [TopicPartition("b", 0)]),
        transactional_id_of("a", [TopicPartition("b-c", 1)]),
    ]
    assert len(set(ids)) == len(ids)
    assert ids[0].startswith("a-b-c-0-")
    assert ids[1].startswith("a-b-c-0-")


def test_the_first_of_the_owned_partitions_names_the_id() -> None:
    owned = [TopicPartition("t", 10), TopicPartition("t", 9), TopicPartition("u", 0)]
    assert transactional_id_of("g", owned) == transactional_id_of("g", owned[1:2])


def test_a_user_without_transactional_ids_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    assert commits_plainly_after(REFUSED, "a group of this test alone", None)
    assert commits_plainly_after(REFUSED, "a group of this test alone", None)
    (line,) = caplog.messages
    assert "refused" in line
    assert was_without_transactions("a group of this test alone")


def test_only_the_default_goes_without_transactions_and_only_where_there_are_none() -> None:
    assert not commits_plainly_after(REFUSED, "strict", True)
    no_group = AuthenticationError("refused", code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert not commits_plainly_after(no_group, "strict", None)
    assert not was_without_transactions("strict")
    too_long = InvalidConfigurationError("refused", code=ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    assert commits_plainly_after(too_long, "low limit", None)
