"""`subscribePattern` in Java's syntax finds the topics that Spark would find."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_source.errors import OptionError
from kafka_source.options import Where, check_read
from kafka_source.options.java_regex import to_python

TOPICS = ["orders", "orders-eu", "Orders_2024", "my.orders", "a1", "B", "_", "12"]
names = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=12)


def found(pattern: str) -> list[str]:
    return [topic for topic in TOPICS if re.search(to_python(pattern), topic)]


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        (r"\Qmy.orders\E", ["my.orders"]),
        (r"^\Qmy.\E(?<rest>\w+)$", ["my.orders"]),
        (r"\Qorders", ["orders", "orders-eu", "my.orders"]),
        (r"^(?<first>[a-z])\d$", ["a1"]),
        (r"(?<one>\d)(?!\k<one>)\d", ["Orders_2024", "12"]),
        (r"^\p{Lu}", ["Orders_2024", "B"]),
        (r"^\p{Upper}$", ["B"]),
        (r"^\p{javaLowerCase}+$", ["orders"]),
        (r"^\P{L}+$", ["_", "12"]),
        (r"^[\p{L}_]+$", ["orders", "B", "_"]),
        (r"^[^\p{Alpha}]+$", ["_", "12"]),
        (r"^[\p{Lower}\P{Alpha}]+$", ["orders", "orders-eu", "my.orders", "a1", "_", "12"]),
        (r"\p{Punct}", ["orders-eu", "Orders_2024", "my.orders", "_"]),
        (r"\p{IsDigit}\z", ["Orders_2024", "a1", "12"]),
        (r"\p{Space}", []),
        (r"^[a-z&]+$", ["orders"]),
        (r"^orders(-eu)?$", ["orders", "orders-eu"]),
        (r"(?i)^ORDERS$", ["orders"]),
        (r"[]a]1", ["a1"]),
        (r"\d{2,}", ["Orders_2024", "12"]),
    ],
)
def test_what_java_writes_otherwise_is_translated(pattern, topics):
    assert found(pattern) == topics


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("[a-z&&[^b]]", "intersection"),
        ("[a-z&&b]", "intersection"),
        ("[a[bc]]", "class inside of a class"),
        (r"\p{InGreekAndMore}", "the unknown class"),
        (r"a\k", "without the name"),
        ("a[", ""),
        ("(", ""),
    ],
)
def test_what_python_would_read_in_another_way_is_refused_with_the_reason(pattern, why):
    options = {"kafka.bootstrap.servers": "here:1", "subscribePattern": pattern}
    with pytest.raises(OptionError, match="subscribePattern") as caught:
        check_read(options, Where.STREAM)
    assert why in str(caught.value)


@given(names, names)
def test_quoted_text_is_found_and_nothing_else(quoted, other):
    pattern = to_python(rf"^\Q{quoted}\E$")
    assert re.search(pattern, quoted)
    assert bool(re.search(pattern, other)) == (quoted == other)


@given(names, st.sampled_from(["L", "Lu", "Alnum", "Punct", "IsDigit", "XDigit", "Space", "ASCII"]))
def test_a_property_and_its_complement_share_no_character_and_miss_none(name, of):
    inside, outside = re.compile(to_python(rf"\p{{{of}}}")), re.compile(to_python(rf"\P{{{of}}}"))
    inside_class, outside_class = re.compile(to_python(rf"[\p{{{of}}}]")), re.compile(to_python(rf"[^\p{{{of}}}]"))
    for character in name:
        assert bool(inside.match(character)) != bool(outside.match(character))
        assert bool(inside.match(character)) == bool(inside_class.match(character))
        assert bool(outside.match(character)) == bool(outside_class.match(character))
