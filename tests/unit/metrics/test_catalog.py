"""Every metric is declared once: the page, the dashboard and the alert rules name these and no others."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafkagroup.metrics.catalog import METRICS, Kind, as_markdown, point

ROOT = Path(__file__).parents[3]
DASHBOARD = ROOT / "observability" / "grafana-dashboard.json"
RULES = ROOT / "observability" / "prometheus-rules.yml"
TESTS_OF_RULES = ROOT / "observability" / "prometheus-rules-test.yml"
# PromQL's functions, keywords and labels that look like the names of metrics do not begin like this.
NAME = re.compile(r"\bkafkagroup_\w+")


def exported() -> dict[str, tuple[str, ...]]:
    """The names of Prometheus' samples, with their labels."""
    found: dict[str, tuple[str, ...]] = {}
    for metric in METRICS:
        labels = tuple(label.name for label in metric.labels)
        if metric.kind is Kind.HISTOGRAM:
            found |= {f"{metric.name}_bucket": (*labels, "le"), f"{metric.name}_sum": labels}
            found |= {f"{metric.name}_count": labels}
        else:
            found[metric.name] = labels
    return found


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text())


def panels() -> list[Any]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def rules() -> list[Any]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def expressions() -> dict[str, str]:
    """Each PromQL expression of the dashboard and of the rules, by where it is."""
    found = {
        f"panel {panel['title']}, query {target['refId']}": target["expr"]
        for panel in panels()
        for target in panel["targets"]
    }
    found |= {
        f"variable {variable['name']}": variable["query"]["query"]
        for variable in dashboard()["templating"]["list"]
        if variable["type"] == "query"
    }
    return found | {f"alert {rule['alert']}": rule["expr"] for rule in rules()}


def test_names_and_units_follow_the_conventions() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert len({metric.otel for metric in METRICS}) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"kafkagroup_[a-z_]+[a-z]", metric.name), metric.name
        assert re.fullmatch(r"(kafkagroup|messaging)(\.[a-z_]+)+", metric.otel), metric.otel
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        if metric.unit == "s":
            assert "seconds" in metric.name, metric.name
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
        assert metric.doc.endswith("."), metric.doc


def test_a_point_has_a_value_for_each_label() -> None:
    with pytest.raises(ValueError, match="has 6 labels, not 1"):
        point(METRICS[0], 1, "orders")


def test_the_page_has_the_tables_of_the_catalog() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text().endswith(as_markdown())


@pytest.mark.parametrize("where", expressions())
def test_dashboard_and_rules_name_declared_metrics_and_labels_only(where: str) -> None:
    expression, declared = expressions()[where], exported()
    named = set(NAME.findall(expression))
    assert named, f"{where} has no metric of ours"
    assert named <= declared.keys()
    labels = {label for name in named for label in declared[name]}
    for selector in re.findall(r"\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)) <= labels, where
    for grouping in re.findall(r"\b(?:by|on|ignoring|group_left|without)\s*\(([^)]*)\)", expression):
        assert {label.strip() for label in grouping.split(",") if label.strip()} <= labels, where


def test_every_metric_is_on_the_dashboard_or_in_a_rule() -> None:
    shown = {name for expression in expressions().values() for name in NAME.findall(expression)}
    unseen = {m.name for m in METRICS if not any(name.startswith(m.name) for name in shown)}
    assert unseen == set()


def test_a_counter_is_shown_as_a_rate_or_an_increase() -> None:
    totals = [metric.name for metric in METRICS if metric.kind is Kind.COUNTER]
    for where, expression in expressions().items():
        if where.startswith("variable"):
            continue
        for name in totals:
            for used in re.finditer(rf"\b{name}\b", expression):
                before = expression[: used.start()].rstrip()
                # A series that begins with its only figure has no increase.
                if "unless" in expression and " offset " in expression:
                    continue
                assert re.search(r"(rate|increase)\($", before), f"{where}: {name}"


def test_the_dashboard_has_what_grafana_needs_to_import_it() -> None:
    found = dashboard()
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time", "__inputs", "__requires"} <= found.keys()
    (source,) = found["__inputs"]
    assert (source["type"], source["pluginId"]) == ("datasource", "prometheus")
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels():
        assert panel["datasource"]["uid"] == f"${{{source['name']}}}"
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_panels_do_not_overlap_and_stay_within_24_columns() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_each_alert_says_how_bad_it_is_and_where_the_runbook_is() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    anchors = {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", page, re.M)
    }
    assert rules()
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"].endswith(".")
        where, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert where == "docs/operations.md"
        assert anchor in anchors, f"{rule['alert']}: {anchor}"
        assert f"`{rule['alert']}`" in page, f"{rule['alert']} is not on the page"


def test_every_alert_has_a_test_in_which_it_fires() -> None:
    tests = yaml.safe_load(TESTS_OF_RULES.read_text())["tests"]
    fired = {one["alertname"] for test in tests for one in test["alert_rule_test"] if one["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules()}


def test_prometheus_says_that_the_rules_do_what_their_tests_say() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool of Prometheus is not installed")
    done = subprocess.run(
        [promtool, "test", "rules", TESTS_OF_RULES.name],
        cwd=TESTS_OF_RULES.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
