"""Java and librdkafka consumers in the same group as our slots, whoever leads."""

from contextlib import closing

import pytest

from tests.apps.confluent_consumer import ConfluentConsumer
from tests.apps.process import java_consumer
from tests.support.memberships import everything, held
from tests.support.waiting import wait_until

PARTITIONS = 6


class JavaConsumer:
    """A consumer of the Java client."""

    def __init__(self, servers, group, topic, folder, strategy="range"):
        self._app = java_consumer(folder, servers, group, topic, strategy=strategy)

    @property
    def assigned(self):
        lines = [line for line in self._app.lines() if line.startswith(("assigned", "revoked"))]
        if not lines or lines[-1].startswith("revoked"):
            return []
        return [int(name.rpartition("-")[2]) for name in lines[-1].partition(" ")[2].split(",") if name]

    def close(self):
        self._app.stop()


@pytest.fixture(params=["java", "librdkafka"])
def other(request, kafka, group, tmp_path, opened):
    """Starts another client's consumer of a topic in the group."""

    def start(topic, strategy="range"):
        if request.param == "java":
            return opened.enter_context(
                closing(JavaConsumer(kafka.bootstrap_servers, group, topic, tmp_path, strategy))
            )
        return opened.enter_context(
            closing(ConfluentConsumer(kafka.bootstrap_servers, group, topic, strategy=strategy))
        )

    return start


def shared(membership, consumer, topic):
    """Rejoins when it is time, until both hold parts that make the whole; then what each holds."""

    def both():
        if membership.rebalance_needed():
            membership.rejoin(60)
        theirs = consumer.assigned
        ours = [tp.partition for tp in held(membership)]
        return theirs and ours and sorted(theirs + ours) == list(range(PARTITIONS)) and (ours, theirs)

    return wait_until(both, f"{topic} to be shared")


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_we_lead_and_the_other_client_reads_what_we_assign(members, topic, other, strategy):
    orders = topic("orders", partitions=PARTITIONS)
    membership = members.make(orders, slots=2, strategies=[strategy])
    assert membership.join(60).leading
    ours, theirs = shared(membership, other(orders, strategy), orders)
    assert (len(ours), len(theirs)) == (4, 2)
    assert membership.assignment.leading


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_the_other_client_leads_and_we_read_what_it_assigns(members, topic, other, strategy):
    orders = topic("orders", partitions=PARTITIONS)
    consumer = other(orders, strategy)
    wait_until(lambda: sorted(consumer.assigned) == list(range(PARTITIONS)), "the other client to have all")
    membership = members.make(orders, slots=2, strategies=[strategy])
    assert not membership.join(60).leading
    ours, theirs = shared(membership, consumer, orders)
    assert (len(ours), len(theirs)) == (4, 2)


def test_it_gets_everything_when_we_leave_and_gives_it_back(members, topic, other):
    orders = topic("orders", partitions=PARTITIONS)
    membership = members.make(orders, slots=2)
    membership.join(60)
    consumer = other(orders)
    shared(membership, consumer, orders)
    membership.close()
    wait_until(lambda: sorted(consumer.assigned) == list(range(PARTITIONS)), "the other client to have all")
    again = members.make(orders, slots=2)
    again.join(60)
    shared(again, consumer, orders)
    consumer.close()

    def back():
        if again.rebalance_needed():
            again.rejoin(60)
        return held(again) == everything(orders, PARTITIONS)

    wait_until(back, "all partitions to come back")
