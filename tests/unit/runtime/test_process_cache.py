"""What a process keeps for later: made once, bounded, closed when given up, and not inherited by a forked child."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from kafka_source.runtime.process_cache import ProcessCache


class Kept:
    def __init__(self, key: str) -> None:
        self.key, self.closed, self.usable = key, False, True

    def close(self) -> None:
        self.closed = True


def cache(most: int = 2) -> ProcessCache[str, Kept]:
    return ProcessCache(Kept, close=Kept.close, usable=lambda kept: kept.usable, max_size=most)


def test_the_same_key_gets_the_same_object() -> None:
    kept = cache()
    assert kept.of("a") is kept.of("a")
    assert kept.of("b") is not kept.of("a")


def test_the_one_that_was_used_longest_ago_is_closed() -> None:
    kept = cache(most=2)
    a, b = kept.of("a"), kept.of("b")
    kept.of("a")
    c = kept.of("c")
    assert [one.closed for one in (a, b, c)] == [False, True, False]
    assert kept.of("a") is a
    assert kept.of("b") is not b


def test_one_that_is_of_no_use_any_more_is_made_again() -> None:
    kept = cache()
    old = kept.of("a")
    old.usable = False
    assert kept.of("a") is not old
    assert not old.closed


def test_threads_that_ask_at_once_get_one_object() -> None:
    together = threading.Barrier(8)
    made: list[str] = []

    def make(key: str) -> Kept:
        made.append(key)
        return Kept(key)

    kept = ProcessCache(make)

    def ask(_: int) -> Kept:
        together.wait()
        return kept.of("a")

    with ThreadPoolExecutor(8) as threads:
        assert len(set(map(id, threads.map(ask, range(8))))) == 1
    assert made == ["a"]


def test_a_forked_child_starts_empty_even_if_the_parent_was_just_asking() -> None:
    kept = cache()
    ours = kept.of("a")
    asking, go_on = threading.Event(), threading.Event()

    def slow(key: str) -> Kept:
        asking.set()
        go_on.wait(60)
        return Kept(key)

    held = ProcessCache(slow)
    thread = threading.Thread(target=held.of, args=("a",))
    thread.start()
    asking.wait(60)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            go_on.set()
            theirs = kept.of("a")
            status = 0 if theirs is not ours and not ours.closed and held.of("a").key == "a" else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    go_on.set()
    thread.join()
    assert kept.of("a") is ours
