"""Partitions and names in a short form for people: `orders:0-3,7 payments:0`, and `a, b and 3 more`."""

from collections.abc import Iterable, Mapping, Sequence

from assignors.model import TopicPartition

# The maximum number of partitions whose moves a line names.
_MAX_MOVES = 5


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of the partitions of each topic, in the given order."""
    numbers: dict[str, list[int]] = {}
    for tp in partitions:
        numbers.setdefault(tp.topic, []).append(tp.partition)
    return numbers


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as runs (first, last), both included."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def runs_text(numbers: Iterable[int], separator: str) -> str:
    """Return ascending numbers as text, such as `0-3,7`."""
    return separator.join(str(first) if first == last else f"{first}-{last}" for first, last in runs(numbers))


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Return sorted partitions in the short form; `none` if there are none."""
    by_topic = numbers_by_topic(partitions)
    return " ".join(f"{topic}:{runs_text(numbers, ',')}" for topic, numbers in by_topic.items()) or "none"


def first_names(names: Sequence[str], max_named: int, separator: str = ", ") -> str:
    """Return the first `max_named` of the names as text, and the number of further names."""
    more = len(names) - max_named
    return separator.join(names[:max_named]) + (f" and {more} more" if more > 0 else "")


def format_moves(moves: Mapping[TopicPartition, tuple[int, int]]) -> str:
    """Return some partitions with their old and new offsets, and the number of the other partitions."""
    texts = [f"{tp.topic}-{tp.partition} from={before} to={to}" for tp, (before, to) in sorted(moves.items())]
    more = f" and {len(texts) - _MAX_MOVES} more" if len(texts) > _MAX_MOVES else ""
    return ", ".join(texts[:_MAX_MOVES]) + more
