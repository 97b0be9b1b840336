"""The document of `offsets export`: what it holds, and where it is valid."""

import pytest

from assignors import TopicPartition
from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.commits import CommitOffset
from kafkagroup.admin import OffsetsDocument
from kafkagroup.admin.offsets_document import check_place

FIRST, TENTH = TopicPartition("orders", 0), TopicPartition("orders", 10)
CLICKS = TopicPartition("clicks", 0)
DOCUMENT = OffsetsDocument(
    "billing",
    "cluster-a",
    {TENTH: CommitOffset(5), FIRST: CommitOffset(7, 3, "note"), CLICKS: CommitOffset(1)},
    {"orders": "id-o", "clicks": "id-c"},
)
HERE = {"orders": "id-o", "clicks": "id-c"}


def test_its_text_is_stable() -> None:
    other_way_round = dict(sorted(DOCUMENT.offsets.items(), reverse=True))
    other = OffsetsDocument("billing", "cluster-a", other_way_round, DOCUMENT.topics)
    assert other.to_json() == DOCUMENT.to_json()


def test_only_some_topics() -> None:
    assert set(DOCUMENT.restricted_to(frozenset({"clicks"})).offsets) == {CLICKS}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "group": "g", "topics": {}}',
        '{"version": 1, "group": "g", "topics": {"t": {"partitions": {"x": {"offset": 1}}}}}',
        '{"version": 1, "group": "g", "topics": {"t": {"partitions": {"0": {"offset": -1}}}}}',
        '{"version": 1, "group": "g", "topics": {"t": {"partitions": {"0": {"offset": 9223372036854775808}}}}}',
        '{"version": 1, "group": "g", "topics": {"t": {"partitions": {"0": {"offset": "1"}}}}}',
        '{"version": 1, "group": "g", "topics": {"t": {"partitions": {"0": {"offset": true}}}}}',
        '{"version": 1, "group": "g", "topics": []}',
    ],
)
def test_what_is_no_document(text: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="Not a document of `kafkagroup offsets export`"):
        OffsetsDocument.from_json(text)


def test_the_csv_of_javas_export_is_read_for_one_group() -> None:
    one = OffsetsDocument("billing", None, {FIRST: CommitOffset(7), CLICKS: CommitOffset(1)})
    assert OffsetsDocument.from_csv('"orders",0,7\nclicks, 0, 1\n\n', "billing") == one
    several = "billing,orders,0,7\nother,orders,0,9\nbilling,clicks,0,1\n"
    assert OffsetsDocument.from_csv(several, "billing") == one
    assert OffsetsDocument.from_csv("other,orders,0,9\n", None).group == "other"
    for text, group in ((several, None), (several, "third"), ("orders,0,7", None)):
        with pytest.raises(InvalidConfigurationError, match="--group"):
            OffsetsDocument.from_csv(text, group)
    for wrong in ("orders,0", "orders,0,-1", "orders,x,1", "a,b,c,d,e", "some text"):
        with pytest.raises(InvalidConfigurationError, match=r"Line 2 of the file is not TOPIC,PARTITION,OFFSET"):
            OffsetsDocument.from_csv(f"orders,0,7\n{wrong}", "billing")


def test_it_is_valid_where_it_was_exported() -> None:
    check_place(DOCUMENT, "cluster-a", HERE)
    check_place(DOCUMENT, None, HERE)
    # Brokers before 2.8 have no topic ids.
    check_place(DOCUMENT, "cluster-a", {"orders": None, "clicks": None})


def test_it_is_refused_in_another_cluster() -> None:
    with pytest.raises(InvalidConfigurationError, match="of cluster cluster-a, and this is cluster cluster-b"):
        check_place(DOCUMENT, "cluster-b", HERE)


def test_it_is_refused_for_a_topic_that_is_not_there_or_was_created_again() -> None:
    with pytest.raises(InvalidConfigurationError, match="Topic clicks of the document does not exist"):
        check_place(DOCUMENT, "cluster-a", {"orders": "id-o"})
    with pytest.raises(InvalidConfigurationError, match="Topic orders was deleted and created again"):
        check_place(DOCUMENT, "cluster-a", {"orders": "id-new", "clicks": "id-c"})
