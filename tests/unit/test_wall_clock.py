"""No decision is made by the wall clock: each use of it has a reason here. Everything else measures time steadily."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The functions that may use the wall clock, how many times, and what for.
ALLOWED = {
    "kafkagroup/admin/checkpoints.py::Checkpoint._first_batch": (1, "a timestamp of Spark's own, in a checkpoint"),
    "kafkagroup/admin/lag.py::moves_now": (1, "a place that a user names as a time before now"),
    "kafkagroup/cli/topics.py::_start": (1, "the same"),
    "kafkagroup/arrow/settings.py::position_options": (1, "a place that a user names as a time before now"),
    "kafkagroup/cli/watch.py::_look_once": (1, "since when an offset stands still, between calls of a probe"),
    "kafkagroup/cli/transactions.py::_show": (1, "how long ago a transaction began, for people"),
    "kafka_source/client_config/tokens.py::_google": (1, "the time at which a token was issued, for its server"),
    "kafkagroup/doctor/examine.py::_brokers": (2, "compares the clocks of driver, executors and brokers"),
    "kafkagroup/doctor/examine.py::_executors": (1, "the same"),
    "kafkagroup/doctor/examine.py::_rights_and_clocks": (1, "the same"),
    "kafka_source/group/rebalance_log.py::RebalanceLog.note": (1, "the time at which a rebalance ended, for metrics"),
    "kafka_source/group/consumer_protocol/membership.py::ConsumerMembership._note": (1, "the same"),
    "kafka_source/kafka_client/sasl.py::_new_token": (1, "tokens expire by the wall clock (RFC 7519)"),
    "kafka_source/kafka_client/sasl.py::_unsecured": (1, "the same"),
    "kafkagroup/metrics/meter.py::MetricsListener.onQueryIdle": (1, "the time of a sample"),
    "kafkagroup/metrics/meter.py::MetricsListener.onQueryProgress": (1, "the same"),
    "kafkagroup/metrics/meter.py::MetricsListener.onQueryStarted": (1, "the same"),
    "kafkagroup/metrics/start.py::TransactionWatcher._points": (1, "its age, for metrics"),
    "kafkagroup/plots/pictures.py::_dates": (1, "shows times that were measured"),
    "kafka_source/runtime/logs.py::JsonFormatter.format": (2, "the time of a log line"),
    "kafka_source/produce/accumulator.py::Accumulator.add": (
        1,
        "the timestamp of a record that has none, as in Java",
    ),
    "kafka_source/source/stream_planner.py::StreamPlanner._next": (
        1,
        "when latest offsets were looked up, for metrics",
    ),
    "kafka_source/source/plan.py::Admission.__init__": (1, "Spark's trigger intervals are counted from 1970"),
    "kafka_source/source/owners.py::CommittingOwner._count_commit": (1, "the time of a commit, for metrics"),
}
# What `time` has beside the wall clock.
STEADY = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "process_time_ns", "sleep"}
# Of classes of datetime, whatever name they have, and of pandas and Java.
METHODS = {"now", "utcnow", "today", "fromtimestamp", "utcfromtimestamp", "currentTimeMillis"}
CLASSES = {"datetime", "date", "Timestamp", "System"}


def uses(code: str) -> Iterator[str]:
    """Yield the function of each use of the wall clock, by its qualified name; of the module's own code: `(module)`."""
    tree = ast.parse(code)
    modules, functions = set[str](), set[str]()
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name for alias in node.names if alias.name == "time"}
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            functions |= {alias.asname or alias.name for alias in node.names if alias.name not in STEADY}

    def visit(node: ast.AST, where: tuple[str, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            scope = where
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                scope = (*where, child.name)
            elif isinstance(child, ast.Attribute):
                owner = child.value.id if isinstance(child.value, ast.Name) else getattr(child.value, "attr", "")
                of_time = isinstance(child.value, ast.Name) and owner in modules
                method = child.attr in METHODS and (id(child) in called or owner in CLASSES)
                if method or (of_time and child.attr not in STEADY):
                    yield ".".join(where) or "(module)"
                if of_time:
                    continue
            elif isinstance(child, ast.Name) and child.id in modules | functions and isinstance(child.ctx, ast.Load):
                # A function of it, or the module itself, which is handed on.
                yield ".".join(where) or "(module)"
            yield from visit(child, scope)

    return visit(tree, ())


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import time\ndef f():\n    return time.time()", ["f"]),
        ("import time as t\nclass C:\n    def f(self):\n        return t.time_ns()", ["C.f"]),
        ("from time import time\ndef f():\n    return time() + time()", ["f", "f"]),
        ("from time import time as seconds\nasync def f():\n    return seconds()", ["f"]),
        ("def f():\n    from time import gmtime\n    return gmtime()", ["f"]),
        ("import time\ndef f(clock=time.time):\n    return clock()", ["f"]),
        ("import time\nclock = time\nlast = time.localtime()", ["(module)", "(module)"]),
        ("from datetime import datetime, date\ndef f():\n    return datetime.now(), date.today()", ["f", "f"]),
        ("import datetime\ndef f(at):\n    return datetime.datetime.fromtimestamp(at).utcnow()", ["f", "f"]),
        ("from datetime import datetime as d\ndef f(clock=d.now, at=None):\n    return d.now() - at.now", ["f"]),
        ("from datetime import datetime\ndef f(g):\n    return g(datetime.now)", ["f"]),
        ("import time\nfrom time import monotonic, sleep\ndef f(loop):\n    sleep(time.monotonic() - loop.time())", []),
    ],
)
def test_each_use_is_seen(code: str, found: list[str]) -> None:
    assert list(uses(code)) == found


def test_no_decision_is_made_by_the_wall_clock() -> None:
    found = Counter(
        f"{path.relative_to(ROOT).as_posix()}::{function}"
        for package in ("kafkagroup", "kafka_source", "assignors", "pyspark_kafkagroup")
        for path in (ROOT / package).rglob("*.py")
        if "embedded" not in path.parts
        for function in uses(path.read_text())
    )
    assert found == {function: times for function, (times, _) in ALLOWED.items()}


def test_the_kernel_has_no_clock() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "native" / "src").rglob("*.rs"))
    assert sources
    assert not re.search(r"SystemTime|\bUtc\b|\bLocal::now\b", sources)
