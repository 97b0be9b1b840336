"""The examples as their docstrings say they are run; examples that have tests of their own are not here."""

import re

import pytest
from confluent_kafka import KafkaException

from examples.lag_plot import WIDTH, lag_plot
from examples.setting import ORDERS, PARTITIONS
from tests.support.native import without_warning
from tests.support.programs import run_python

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def servers(kafka):
    """A Kafka without orders: each example begins with a topic of its own making."""
    yield kafka.bootstrap_servers
    try:
        kafka.delete_topic(ORDERS)
    except KafkaException as error:
        pytest.fail(f"the example did not make its topic: {error}")


def run(name, *arguments):
    """What `python -m examples.NAME` prints. On standard error is nothing: no warning of Spark, no traceback."""
    done = run_python("-m", f"examples.{name}", *arguments, seconds=300)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    assert without_warning(done.stderr) == ""
    return done.stdout


@pytest.mark.long
def test_batch_reads_what_is_new_each_night(servers):
    said = run("batch", servers)
    assert re.findall(r"(\w+) night: (\d+) new orders", said) == [("first", "500"), ("second", "200"), ("third", "0")]


@pytest.mark.long
def test_streaming_archives_each_order_once_over_a_restart(servers):
    assert "archived 800 orders with 800 different ids" in run("streaming", servers)


@pytest.mark.long
@pytest.mark.requires_native
def test_values_of_avro_become_a_table_and_others_dead_letters(kafka, servers, kafkagroup_schema_registry):
    try:
        assert "500 orders in the table, 3 dead letters" in run("values", servers, kafkagroup_schema_registry.url)
    finally:
        kafka.delete_topic("orders-dead")


@pytest.mark.long
def test_two_spark_applications_and_a_java_application_have_each_customer_at_one_place(kafka, servers):
    try:
        said = run("three_applications", servers)
    finally:
        kafka.delete_topic("payments")
    assert "group accounts agrees on range:" in said
    shares = dict_of_shares(said)
    assert shares.keys() == {"java", "spark-a-member", "spark-b-member"}
    assert all(
        {name.replace(ORDERS, "payments") for name in share if ORDERS in name} <= share for share in shares.values()
    )
    assert set().union(*shares.values()) == {f"{name}-{n}" for name in (ORDERS, "payments") for n in range(PARTITIONS)}
    assert "200 customers, 200 of them at one application:" in said
    counted = re.findall(r"(\S+) has counted (\d+) orders and (\d+) payments", said)
    assert {name for name, *_ in counted} == {"java", "spark-a", "spark-b"}
    assert [sum(int(one[index]) for one in counted) for index in (1, 2)] == [1000, 200]


def dict_of_shares(told):
    """The partitions by client id, of one group as the example prints it."""
    shares: dict[str, set[str]] = {}
    for client, partitions in re.findall(r"^  (\S+): (.*)$", told, flags=re.MULTILINE):
        shares.setdefault(client, set()).update(set(partitions.split(", ")) - {"none"})
    return shares


@pytest.mark.long
def test_two_topics_are_joined_without_a_shuffle(kafka, servers):
    try:
        said = run("copartitioned", servers)
    finally:
        kafka.delete_topic("customers")
    plan, _, result = said.partition("1000 orders, ")
    assert result.splitlines()[0] == "1000 with the city of their customer"
    assert "== Physical Plan ==" in plan
    assert "MapInArrow" in plan
    assert "Exchange" not in plan


def test_the_demo_shows_the_main_job_on_a_kafka_of_its_own():
    said = run("demo")
    assert "All 5000 orders were read exactly once." in said
    assert "lag of group order-book before the stream" in said
    assert "lag of group order-book after the stream" in said
    assert said.rstrip().endswith("./run demo HOST:9092 TOPIC")
    drawn = lag_drawn(said)
    assert "lag of group order-book while the stream ran" in said
    assert len(set(drawn)) > 2, "the lag falls in steps"
    assert (drawn[0], drawn[-1]) == (6, 0), "from its most to zero"


def lag_drawn(said):
    """The height of each column of the demo's plot, in lines."""
    lines = [line.partition("┤")[2] for line in said.splitlines() if "┤" in line]
    return [sum(line[column : column + 1].strip() != "" for line in lines) for column in range(WIDTH)]


def test_the_plot_of_a_lag_ends_at_zero():
    plot = lag_plot([(10.0, 4000), (12.0, 1000), (13.0, 1), (14.0, 0)], "lag")
    title, top, *_, lowest, _, times = plot.splitlines()
    assert title == "lag"
    assert top == "4,000 ┤" + "█" * 36
    assert lag_drawn(plot) == [6] * 36 + [2] * 17 + [1] * 18 + [0]
    assert lowest.endswith("█" * 53 + "▁" * 18)
    assert times.split() == ["0", "s", "4", "s"]


def test_a_lag_that_was_always_zero_has_an_empty_plot():
    assert set(lag_drawn(lag_plot([(0.0, 0), (1.0, 0)], "lag"))) == {0}


@pytest.mark.long
def test_the_demo_shows_a_topic_of_ones_own_and_changes_nothing(kafka, topic):
    name = topic("mine", partitions=2, records=25)
    before = {found.group_id for found in kafka.admin().list_consumer_groups().result(30).valid}
    said = run("demo", kafka.bootstrap_servers, name, "kafka.client.id=curious")
    assert f"records of {name}" in said
    assert len(re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", said)) == 10
    assert {found.group_id for found in kafka.admin().list_consumer_groups().result(30).valid} == before
