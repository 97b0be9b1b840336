"""The categories of errors against KIP-1050, both client libraries and the docs."""

import inspect
import pickle
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source import errors
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    AbortableError,
    ApplicationRecoverableError,
    InvalidConfigurationError,
    KafkaGroupError,
    RefreshRetriableError,
    RetriableError,
)

# "New handling" of KIP-1050's exception tables, its exceptions written with their protocol codes.
# CommitFailedException, KafkaException and the other plain Java ones have no code; they are the unknown ones.
KIP_1050 = {
    RetriableError: (2, 20, 19, 7, 51, 14),
    RefreshRetriableError: (3, 6, 16, 15),
    AbortableError: (120,),
    ApplicationRecoverableError: (47, 90, 49, 82, 25, 22, 48),
    InvalidConfigurationError: (33, 34, 58, 31, 53, 35, 43, 87, 21, 18, 17, 29, 30),
}

ONE_OF_EACH = [
    KafkaGroupError("m"),
    RetriableError("m", code=7),
    RefreshRetriableError("m", code=6),
    errors.BootstrapError("m", code=-187),
    errors.UnknownTopicError("m", code=3),
    AbortableError("m", code=120),
    errors.DeliveryError(topic="t", partition=3, reason="too large", advice="write less", code=10),
    ApplicationRecoverableError("m", code=-1),
    errors.FencedError("m", code=82),
    errors.UnknownGroupError("m", code=69),
    errors.UnknownOutcomeError("m", code=-185),
    errors.NotVisibleError(batch=7, partitions=[TopicPartition("t", 0)], missing={}, seconds=30.0),
    errors.LostTransactionsError(batch=3, transactional_ids=["a-0-0", "a-1-0"], decided=True),
    errors.AssignmentFailed("m"),
    errors.DataLossError(topic="t", partition=3, planned=7, available=(9, 12), reason="retention"),
    errors.CorruptRecordsError(topic="t", partition=3, offset=7, reason="bad CRC"),
    errors.UnreadableRecordError(topic="t", partition=3, offset=7, reason="no text; ask for value as binary"),
    InvalidConfigurationError("m", code=40),
    errors.OptionError("subscribe", "", "a comma-separated list of topics"),
    errors.AuthenticationError("m", code=58),
]


def every_class() -> set[type[KafkaGroupError]]:
    return {cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, KafkaGroupError)}


@pytest.mark.parametrize(("expected", "code"), [(cls, code) for cls, codes in KIP_1050.items() for code in codes])
def test_categories_are_those_of_kip_1050(expected: type[KafkaGroupError], code: int) -> None:
    assert errors.category(code) is expected


def test_invalid_txn_state_of_a_produce_request_is_abortable() -> None:
    assert errors.category(48, produce=True) is AbortableError
    assert errors.category(48, in_transaction=True) is ApplicationRecoverableError


@hypothesis_settings(deadline=None)
@given(st.sampled_from(sorted(ErrorCode)))
def test_only_retriables_change_inside_a_transaction(code: int) -> None:
    outside, inside = errors.category(code), errors.category(code, in_transaction=True)
    assert inside is (AbortableError if issubclass(outside, RetriableError) else outside)


@hypothesis_settings(deadline=None)
@given(st.integers(-(2**15), 2**15 - 1).filter(lambda code: code and ErrorCode.find(code) is None), st.booleans())
def test_unlisted_codes_are_application_recoverable(code: int, in_transaction: bool) -> None:
    assert errors.category(code, in_transaction=in_transaction) is ApplicationRecoverableError
    error = errors.error_for_code(code, "Something")
    assert type(error) is ApplicationRecoverableError
    assert error.code == code and error.code_name in (f"UNKNOWN_CODE_{code}", KafkaError(code).name())


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "--operation Read --topic TOPIC"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "--operation Read --group GROUP"),
        (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "--operation Write --operation Describe --transactional-id PREFIX --resource-pattern-type prefixed",
        ),
    ],
)
def test_a_missing_right_comes_with_the_command_that_gives_it(code: ErrorCode, rule: str) -> None:
    told = str(errors.error_for_code(code, "Asking failed"))
    assert f"kafka-acls.sh --add --allow-principal User:NAME {rule}" in told


def test_no_error_has_no_category() -> None:
    with pytest.raises(ValueError, match="no error"):
        errors.category(0)


def test_every_code_of_confluent_kafka_has_its_name() -> None:
    theirs = {code: name for name, code in vars(KafkaError).items() if isinstance(code, int) and code != 0}
    assert len(theirs) > 180
    assert {code: errors.code_name(code) for code in theirs if code < -1} == {
        code: name for code, name in theirs.items() if code < -1
    }


@hypothesis_settings(deadline=None)
@given(st.sampled_from(sorted(ErrorCode)), st.booleans(), st.booleans())
def test_an_error_for_a_code_belongs_to_its_category(code: ErrorCode, in_transaction: bool, produce: bool) -> None:
    error = errors.error_for_code(code, "Trying", in_transaction=in_transaction, produce=produce)
    assert isinstance(error, errors.category(code, in_transaction=in_transaction, produce=produce))
    assert (error.code, error.code_name) == (code, code.kafka_name)
    assert f"{code.kafka_name} ({code})" in str(error)


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (22, errors.FencedError),
        (25, errors.FencedError),
        (82, errors.FencedError),
        (90, errors.FencedError),
        (-144, errors.FencedError),
        (3, errors.UnknownTopicError),
        (-187, errors.BootstrapError),
        (58, errors.AuthenticationError),
        (-169, errors.AuthenticationError),
        (53, errors.AuthenticationError),
    ],
)
def test_codes_with_an_error_of_their_own(code: int, cls: type[KafkaGroupError]) -> None:
    assert type(errors.error_for_code(code, "Trying")) is cls


def test_a_specific_retriable_error_does_not_hide_that_the_transaction_must_be_aborted() -> None:
    assert type(errors.error_for_code(3, "Producing", in_transaction=True)) is AbortableError


def test_librdkafka_flags_are_not_asked() -> None:
    fenced = KafkaError(KafkaError.FENCED_INSTANCE_ID, "static member fenced", retriable=True, txn_requires_abort=True)
    error = errors.from_confluent(KafkaException(fenced), "Committing offsets of group g failed", in_transaction=True)
    assert type(error) is errors.FencedError
    assert "static member fenced" in str(error)


def test_an_exception_of_librdkafka_itself() -> None:
    client = AdminClient({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(KafkaException) as caught:
        client.list_topics(timeout=0.1)
    error = errors.from_confluent(caught.value, "Listing topics failed")
    assert isinstance(error, RetriableError)
    assert error.code_name in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT")


def test_a_confluent_exception_without_an_error_in_it() -> None:
    assert type(errors.from_confluent(KafkaException("odd"), "Trying")) is ApplicationRecoverableError


def test_every_class_is_shown_in_the_tree_and_tested_here() -> None:
    assert {type(error) for error in ONE_OF_EACH} == every_class()
    assert all(cls.__name__ in str(errors.__doc__) for cls in every_class())


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling(error: KafkaGroupError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))


def test_texts_say_what_where_and_what_to_do() -> None:
    loss = errors.DataLossError(topic="orders", partition=3, planned=7, available=(9, 12))
    assert "orders-3 cannot be read from offset 7: it has only offsets [9, 12)" in str(loss)
    assert "failOnDataLoss" in str(loss)
    gone = errors.DataLossError(topic="orders", partition=3, planned=7)
    assert "the partition no longer exists" in str(gone)
    corrupt = errors.CorruptRecordsError(topic="orders", partition=3, offset=7, reason="bad CRC")
    assert "orders-3 at offset 7 cannot be read: bad CRC" in str(corrupt)
    lost = errors.DeliveryError(topic="orders", partition=None, reason="Message size too large", code=10)
    assert "for orders was not delivered: Message size too large" in str(lost)
    option = errors.OptionError("maxOffsetsPerTrigger", "-1", "a whole number greater than 0")
    assert str(option) == "Option maxOffsetsPerTrigger got '-1'; it takes a whole number greater than 0."
    missing = errors.OptionError("kafka.bootstrap.servers", None, "a list of host:port")
    assert "is missing" in str(missing)
    assert isinstance(option, ValueError)


def test_the_codes_in_the_docs_are_current() -> None:
    codes = errors.codes_by_category()
    page = Path(__file__).parents[2] / "docs" / "errors.md"
    assert codes.count("`") == 2 * len(ErrorCode)
    assert page.read_text(encoding="utf-8").endswith(codes)
