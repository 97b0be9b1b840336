"""Which of the brokers' quotas holds for a client (KIP-55)."""

import itertools

import pytest

from kafka_source.cluster.client_quotas import CLIENT, USER, ClientQuota, holding

RATE = "consumer_byte_rate"
BY_PRECEDENCE = [
    {USER: "etl", CLIENT: "orders"},
    {USER: "etl", CLIENT: None},
    {USER: "etl"},
    {USER: None, CLIENT: "orders"},
    {USER: None, CLIENT: None},
    {USER: None},
    {CLIENT: "orders"},
    {CLIENT: None},
]


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(range(len(BY_PRECEDENCE)), 2)))
def test_the_more_particular_one_holds(first, second):
    quotas = [ClientQuota(BY_PRECEDENCE[n], {RATE: float(n)}) for n in (second, first)]
    assert holding(quotas, "etl", "orders", RATE) == first


def test_others_do_not_hold():
    others = [{CLIENT: "payments"}, {USER: "me"}, {USER: "etl", CLIENT: "payments"}, {"ip": "10.0.0.1"}]
    quotas = [ClientQuota(entity, {RATE: 1.0}) for entity in others]
    quotas.append(ClientQuota({CLIENT: "orders"}, {"producer_byte_rate": 1.0}))
    assert holding(quotas, "etl", "orders", RATE) is None
