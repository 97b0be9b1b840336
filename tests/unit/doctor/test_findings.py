"""The pure part of the doctor: from what was seen to findings."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_source.kafka_client import Endpoint
from kafkagroup.doctor.brokers import advertised_finding, broker_findings, clock_finding
from kafkagroup.doctor.executors import SeenThere, packages_finding
from kafkagroup.doctor.java_and_spark import JavaAndSpark, find_java_and_spark, java_and_spark_findings
from kafkagroup.doctor.probe import Certificate, Listener, Probe, Step
from kafkagroup.doctor.rights import READ, WRITE, Allowed, named, right_finding
from kafkagroup.doctor.versions import Finding, Installed, document, engine_finding, healthy, version_findings, within

NOW = 1_800_000_000.0
DAY = 86_400.0
INSTALLED = Installed(
    python="3.11.9",
    kafkagroup="0.1.0",
    native="0.1.0",
    native_problem="",
    spark="4.0.1",
    libraries={"pyarrow": "20.0.0", "confluent-kafka": "2.12.1"},
    librdkafka="2.12.1",
    requires={"pyspark": ">=4.0", "confluent-kafka": ">=2.12,<3"},
)
MACHINE = JavaAndSpark(
    spark="4.0.1",
    own_jars="4.0.1",
    spark_home="",
    home_jars=None,
    java="/opt/java/bin/java",
    java_from="PATH",
    java_version=17,
    workers="/usr/bin/python3",
    workers_from="PATH",
    format_found=True,
)


def states(findings: list[Finding]) -> dict[str, str]:
    return {finding.name: finding.state for finding in findings}


@pytest.mark.parametrize(
    ("version", "bounds", "expected"),
    [
        ("4.0.1", ">=4.0", True),
        ("3.5.7", ">=4.0", False),
        ("2.12", ">=2.12,<3", True),
        ("3.0", ">=2.12,<3", False),
        ("3", ">=3.0.0", True),
        ("3.0.12", "~=3.0.8", True),
        ("3.1.0", "~=3.0.8", False),
        ("4.1.0.dev3", ">4.0,!=4.2", True),
        ("4.2.0", "!=4.2", False),
        ("1.0", "", True),
        ("1.0", "@ file:///somewhere", True),
    ],
)
def test_a_version_is_within_bounds(version: str, bounds: str, expected: bool) -> None:
    assert within(version, bounds) is expected


def test_what_fits_together_is_ok() -> None:
    findings = [*version_findings(INSTALLED), *java_and_spark_findings(MACHINE)]
    assert set(states(findings).values()) == {"ok"}
    assert [f.name for f in findings] == [
        "kafkagroup", "engine", "pyspark", "pyarrow", "confluent-kafka", "spark", "java", "format"
    ]  # fmt: skip


def test_versions_that_do_not_fit_fail_with_the_command_that_helps() -> None:
    wrong = replace(INSTALLED, spark="3.5.1", libraries={**INSTALLED.libraries, "confluent-kafka": "2.3.0"})
    found = {f.name: f for f in version_findings(wrong)}
    assert found["pyspark"].state == found["confluent-kafka"].state == "fail"
    assert "pip install 'confluent-kafka>=2.12,<3'" in found["confluent-kafka"].advice
    none = replace(INSTALLED, spark=None, libraries={"pyarrow": None})
    assert states(version_findings(none)) == {"kafkagroup": "ok", "engine": "ok", "pyspark": "fail", "pyarrow": "fail"}


@pytest.mark.parametrize(
    ("native", "problem", "state", "says"),
    [
        ("0.1.0", "", "ok", "native engine serves"),
        (None, "", "warn", "librdkafka serves, because kafkagroup-native is not installed for Python 3.11.9"),
        (None, "GLIBC_2.34 not found", "fail", "GLIBC_2.34 not found"),
        (None, "kafkagroup-native has version 0.0.9", "fail", "cannot serve: kafkagroup-native has version 0.0.9"),
    ],
)
def test_the_engine_that_serves_is_named_with_the_reason(
    native: str | None, problem: str, state: str, says: str
) -> None:
    finding = engine_finding(replace(INSTALLED, native=native, native_problem=problem))
    assert finding.state == state
    assert says in finding.happened
    assert state == "ok" or "kafkagroup-native==0.1.0" in finding.advice


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"java": None}, {"java": "fail"}),
        ({"java_version": None}, {"java": "fail"}),
        ({"java_version": 11}, {"java": "fail"}),
        ({"own_jars": None, "java": None}, {"java": "skipped"}),
        ({"spark_home": "/opt/spark", "home_jars": "3.5.1"}, {"spark": "warn"}),
        ({"spark_home": "/opt/nothing"}, {"spark": "fail"}),
        ({"spark": None}, {"spark": "skipped"}),
        ({"format_found": False}, {"format": "warn"}),
        ({"format_found": False, "workers": None}, {"format": "fail"}),
    ],
)
def test_java_and_spark(change: dict[str, object], expected: dict[str, str]) -> None:
    found = states(java_and_spark_findings(replace(MACHINE, **change)))  # type: ignore[arg-type]
    assert {name: state for name, state in found.items() if state != "ok"} == expected


PROBE = Probe("kafka-1:9092", "PLAINTEXT", ("resolve", "connect", "kafka", "metadata"), cluster_id="c1", seconds=0.012)


def failed(step: Step, protocol: str = "PLAINTEXT", listener: Listener = "") -> Probe:
    return Probe("kafka-1:9092", protocol, ("resolve",), step, "The reason.", listener)


def test_a_machine_without_pyspark_is_not_taken_for_a_client_of_spark_connect():
    findings = java_and_spark_findings(replace(MACHINE, spark=None, own_jars=None))
    assert states(findings) == {"spark": "skipped", "java": "skipped", "format": "ok"}
    assert not any("Connect" in finding.happened for finding in findings)


@pytest.mark.parametrize(
    ("probe", "node", "advice"),
    [
        (failed("resolve"), None, "Check bootstrap.servers"),
        (failed("connect"), 3, "Set advertised.listeners of the broker"),
        (failed("resolve"), 3, "Broker 3 tells its clients to use this address"),
        (failed("tls", "SSL", "plaintext"), None, "set kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT"),
        (failed("tls", "SASL_SSL", "plaintext"), None, "set kafka.security.protocol to SASL_PLAINTEXT or PLAINTEXT"),
        (failed("tls", "SSL", "http"), None, "An HTTP server answers"),
        (failed("tls", "SSL", "tls"), None, "kafka.ssl.truststore.location"),
        (failed("kafka", "PLAINTEXT", "tls"), None, "set kafka.security.protocol to SSL or SASL_SSL"),
        (failed("kafka", "SASL_PLAINTEXT", "tls"), None, "set kafka.security.protocol to SASL_SSL"),
        (failed("login", "SASL_SSL"), None, "the user's credentials"),
        (failed("metadata", "SSL"), None, "requires a login: set kafka.security.protocol to SASL_SSL"),
        (failed("settings"), None, "must exist on the machine that connects"),
    ],
)
def test_the_step_that_failed_is_named_with_its_usual_cause(probe: Probe, node: int | None, advice: str) -> None:
    (finding,) = broker_findings(probe, "broker", now=NOW, node=node)
    assert finding.state == "fail"
    assert finding.happened.endswith("failed: The reason.")
    assert advice in finding.advice


def test_a_broker_that_answers_is_ok_unless_it_belongs_to_another_cluster() -> None:
    (finding,) = broker_findings(PROBE, "broker", now=NOW, cluster_id="c1")
    assert finding.state == "ok"
    assert "TCP, ApiVersions, metadata" in finding.happened
    (finding,) = broker_findings(PROBE, "broker", now=NOW, node=1, cluster_id="c2")
    assert finding.state == "fail"
    assert "belongs to cluster c1" in finding.happened


@pytest.mark.parametrize(("days", "state"), [(365, "ok"), (30, "ok"), (29, "warn"), (0, "warn")])
def test_a_certificate_that_expires_soon_is_a_warning(days: int, state: str) -> None:
    certificate = Certificate(("kafka-1", "10.0.0.1"), NOW + days * DAY)
    _, finding = broker_findings(replace(PROBE, certificate=certificate), "broker", now=NOW)
    assert finding.state == state
    assert "kafka-1, 10.0.0.1" in finding.happened
    assert f"{days} days" in finding.happened


@pytest.mark.parametrize(
    ("bootstrap", "advertised", "expected"),
    [
        ("kafka-1", "localhost", True),
        ("kafka-1", "127.0.0.1", True),
        ("kafka-1", "::1", True),
        ("kafka-1", "kafka-2", False),
        ("127.0.0.1", "localhost", False),
    ],
)
def test_brokers_that_advertise_localhost_are_found(bootstrap: str, advertised: str, expected: bool) -> None:
    finding = advertised_finding([Endpoint(bootstrap, 9092)], [Endpoint(advertised, 9092)])
    assert (finding is not None) is expected


def test_rights() -> None:
    assert named(1 << 3 | 1 << 8 | 1 << 10) == frozenset({"READ", "DESCRIBE"})
    assert named(0) == frozenset()
    assert named(-(2**31)) is None
    read = Allowed("topic t", named(1 << 3 | 1 << 8))
    assert right_finding("r", (READ,), read, "to read").state == "ok"
    denied = right_finding("r", (READ, WRITE), read, "to write")
    assert denied.state == "fail"
    assert "no WRITE on topic t, which is needed to write" in denied.happened
    assert "allows WRITE on topic t" in denied.advice
    assert right_finding("r", (READ,), Allowed("topic t", None, "too old"), "to read").state == "skipped"


@pytest.mark.parametrize(
    ("newest", "state"),
    [
        (None, "skipped"),
        (0, "skipped"),
        (NOW, "ok"),
        (NOW + 4, "ok"),
        (NOW + 6, "warn"),
        (NOW - 59, "ok"),
        (NOW - 61, "skipped"),
    ],
)
def test_clocks(newest: float | None, state: str) -> None:
    assert clock_finding(None if newest is None else int(newest * 1000), NOW).state == state


@pytest.mark.parametrize(
    ("change", "state", "says"),
    [
        ({}, "ok", "the native engine serves"),
        ({"python": "3.11.2"}, "ok", "Python 3.11.2"),
        ({"python": "3.12.2"}, "fail", "Python is 3.12 in the executor and 3.11 in the driver"),
        ({"kafkagroup": "0.0.9"}, "fail", "kafkagroup is 0.0.9 in the executor"),
        ({"native": None}, "warn", "kafkagroup-native is not installed in the executor"),
        ({"native_problem": "its version is 0.0.9"}, "fail", "its version is 0.0.9"),
    ],
)
def test_the_executors_packages_are_compared_with_the_drivers(change: dict[str, object], state: str, says: str) -> None:
    there = SeenThere("worker-1", replace(INSTALLED, **change), ())  # type: ignore[arg-type]
    finding = packages_finding(INSTALLED, there)
    assert finding.state == state
    assert says in finding.happened


def test_the_document_has_stable_names() -> None:
    findings = [Finding("a", "ok", "Good."), Finding("b", "warn", "Slow.", "Do this.")]
    assert json.loads(json.dumps(document(findings))) == {
        "healthy": True,
        "findings": [
            {"name": "a", "state": "ok", "happened": "Good.", "advice": ""},
            {"name": "b", "state": "warn", "happened": "Slow.", "advice": "Do this."},
        ],
    }
    assert not healthy([*findings, Finding("c", "fail", "Broken.")])
    assert str(findings[1]) == "warn: b: Slow. Do this."


def test_the_format_is_looked_for_with_the_python_that_spark_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert find_java_and_spark("4.3.0").format_found
    bare = tmp_path / "python3"
    # A Python without site-packages, as the system's one is.
    bare.write_text(f'#!/bin/sh\ncd /\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = find_java_and_spark("4.3.0")
    assert (found.workers, found.workers_from, found.format_found) == (str(bare), "PATH", False)
    (finding,) = [one for one in java_and_spark_findings(found) if one.name == "format"]
    assert finding.state == "warn"
    assert f"PYSPARK_PYTHON={sys.executable}" in finding.advice
