"""Our strategies inside plain kafka-python consumers, on a real broker."""

from examples.kafka_python_sticky import main


def test_two_consumers_share_and_one_keeps_what_it_had() -> None:
    alone, shared, after = main()
    assert alone == after == [0, 1, 2, 3]
    assert len(shared) == 2
    assert set(shared) < set(alone)
