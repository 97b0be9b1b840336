"""Side groups: which names are private, and the pattern for lag monitors on the operations page."""

from pathlib import Path

from kafka_source.commits.side_groups import PATTERN, private_groups

_PAGE = Path(__file__).parents[3] / "docs" / "operations.md"


def test_side_groups_are_told_from_groups_of_users() -> None:
    query, stream = "4a7e5209-f76e-4785-b542-8cf16b5023b7", "0f" * 16
    private = {"copy-ledger", "copy-ledger-3", "copy-finished", f"b-read-by-{query}", f"b-read-by-{stream}"}
    private |= {f"b-rejoined-{stream}", f"b-rejoined-{stream}-asked", "b-kafkagroup-halt", "b-kafkagroup-idle"}
    users = {"b", "copy", "orders-finished", "my-ledger", "my-ledger-book", "b-read-by-alice", "b-rejoined-bob"}
    assert private_groups(private | users) == private


def test_the_operations_page_has_the_pattern() -> None:
    assert f"```text\n{PATTERN}\n```" in _PAGE.read_text()
