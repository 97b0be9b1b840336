"""Check the installed versions, and the engine that serves; `Finding` is the result of a check."""

import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module, metadata, util
from typing import Literal

from kafka_source.engine_selection import NATIVE_MODULE, why_not_native
from kafka_source.version import __version__

State = Literal["ok", "warn", "fail", "skipped"]
"""`ok`: works. `warn`: works, but not as well as it could. `fail`: does not work. `skipped`: unknown."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, without secrets.

    Attributes:
        name: The check, for example `broker 1 at kafka-1:9092`.
        state: ok, warn, fail or skipped.
        happened: The result, as a sentence.
        advice: The remedy; empty if none is needed.
    """

    name: str
    state: State
    happened: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.name}: {self.happened}" + (f" {self.advice}" if self.advice else "")


def healthy(findings: Iterable[Finding]) -> bool:
    """Return whether no check failed; warnings and skipped checks are no failures."""
    return all(finding.state != "fail" for finding in findings)


def document(findings: Iterable[Finding]) -> dict[str, object]:
    """Return the findings as a JSON document: `healthy`, and `findings` with the fields of `Finding`."""
    listed = list(findings)
    return {"healthy": healthy(listed), "findings": [asdict(finding) for finding in listed]}


_DISTRIBUTION = "kafkagroup"
# The distributions that bring the module `pyspark`.
_SPARKS = ("pyspark", "pyspark-client", "databricks-connect")
_LIBRARIES = ("pyarrow", "confluent-kafka")
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*\(?([^;)]*)")
_BOUND = re.compile(r"^(>=|<=|==|!=|~=|>|<)\s*([0-9.]+)")


@dataclass(frozen=True, slots=True)
class Installed:
    """The packages and the engine of one Python.

    Attributes:
        python: The version of Python.
        kafkagroup: The version of this package.
        native: The version of the native engine; None if it is not installed or cannot serve.
        native_problem: The reason why the installed native engine cannot serve; empty: no problem.
        spark: The version of the module `pyspark`; None: not installed.
        libraries: The versions of the other libraries by distribution; None: not installed.
        librdkafka: The version of librdkafka in confluent-kafka; None if it cannot be loaded.
        requires: The bounds of kafkagroup's requirements by distribution, for example `>=2.12,<3`. Empty if the
            package has no metadata, for example in a source tree.
    """

    python: str
    kafkagroup: str
    native: str | None
    native_problem: str
    spark: str | None
    libraries: Mapping[str, str | None]
    librdkafka: str | None
    requires: Mapping[str, str]


def installed() -> Installed:
    """Look up the packages of this Python."""
    native, native_problem = _native()
    return Installed(
        python=platform.python_version(),
        kafkagroup=__version__,
        native=native,
        native_problem=native_problem,
        spark=_module_version("pyspark"),
        libraries={name: _distribution_version(name) for name in _LIBRARIES},
        librdkafka=_librdkafka(),
        requires=_requirements(),
    )


def version_findings(found: Installed) -> list[Finding]:
    """Return the findings about versions, and about the engine that serves."""
    return [
        Finding("kafkagroup", "ok", f"Version {found.kafkagroup}, on Python {found.python} and {platform.platform()}."),
        engine_finding(found),
        _spark(found),
        *(_library(name, version, found) for name, version in found.libraries.items()),
    ]


def engine_finding(found: Installed) -> Finding:
    """Return the engine that serves with `engine=auto`, and the reason."""
    name = "engine"
    same = f"Install kafkagroup-native {found.kafkagroup} for this Python: pip install kafkagroup-native=="
    if found.native_problem:
        return Finding(
            name,
            "fail",
            f"The native engine is installed, but cannot serve: {found.native_problem}.",
            f"{same}{found.kafkagroup}. Or use engine=librdkafka.",
        )
    if found.native is None:
        return Finding(
            name,
            "warn",
            f"librdkafka serves, because kafkagroup-native is not installed for Python {found.python}. librdkafka is "
            "slower than the native engine.",
            f"{same}{found.kafkagroup}.",
        )
    return Finding(name, "ok", f"The native engine serves: kafkagroup-native {found.native}.")


def _spark(found: Installed) -> Finding:
    if found.spark is None:
        return Finding(
            "pyspark", "fail", "There is no module pyspark.", "Install pyspark 4.0 or later, or pyspark-client."
        )
    return _judge("pyspark", found.spark, next((found.requires[n] for n in _SPARKS if n in found.requires), ""))


def _library(name: str, version: str | None, found: Installed) -> Finding:
    bounds = found.requires.get(name, "")
    if version is None:
        return Finding(name, "fail", f"{name} is not installed.", f"Install it: pip install '{name}{bounds}'")
    extra = f" with librdkafka {found.librdkafka}" if name == "confluent-kafka" and found.librdkafka else ""
    if name == "confluent-kafka" and not found.librdkafka:
        return Finding(name, "fail", f"Version {version} cannot be loaded.", f"Install {name}{bounds} again.")
    return _judge(name, version, bounds, extra)


def _judge(name: str, version: str, bounds: str, extra: str = "") -> Finding:
    if within(version, bounds):
        return Finding(name, "ok", f"Version {version}{extra}.")
    return Finding(
        name,
        "fail",
        f"Version {version} is installed, and kafkagroup needs {bounds}.",
        f"Install another version: pip install '{name}{bounds}'",
    )


def within(version: str, bounds: str) -> bool:
    """Return whether a version is within bounds such as `>=2.12,<3`; bounds of another form count as met."""
    for part in bounds.split(","):
        match = _BOUND.match(part.strip())
        if match is None:
            continue
        operator, numbers = match[1], _numbers(match[2])
        # 3 and 3.0 are the same version.
        length = max(len(numbers), len(_numbers(version)))
        ours, theirs = (each + (0,) * (length - len(each)) for each in (_numbers(version), numbers))
        outcome = {
            ">=": ours >= theirs, "<=": ours <= theirs, ">": ours > theirs, "<": ours < theirs, "==": ours == theirs,
            "!=": ours != theirs, "~=": ours >= theirs and ours[: len(numbers) - 1] == numbers[:-1],
        }  # fmt: skip
        if not outcome[operator]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    # Ignore a suffix such as `.dev1` or `rc1`.
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _requirements() -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        lines = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match is not None and match[2].strip():
            found.setdefault(match[1].lower(), match[2].strip())
    return found


def _distribution_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _module_version(name: str) -> str | None:
    if util.find_spec(name) is None:
        return None
    try:
        return str(import_module(name).__version__)
    except Exception:
        return next((version for each in _SPARKS if (version := _distribution_version(each))), "unknown")


def _native() -> tuple[str | None, str]:
    if util.find_spec(NATIVE_MODULE) is None:
        return None, ""
    reason = why_not_native()
    if reason is not None:
        return None, " ".join(reason.split())
    # The handshake accepts this version only.
    return __version__, ""


def _librdkafka() -> str | None:
    try:
        version, _ = import_module("confluent_kafka").libversion()
    except Exception:
        return None
    return str(version)
