"""What `./run` installs by itself: everything that the project needs, except its native engine."""

import pytest

from release.requirements import requirements

LINES = [
    "pyarrow>=15",
    'kafkagroup-native==0.1.0; sys_platform != "nowhere"',
    'old-python; python_version < "3"',
    'pyspark>=4.0; extra == "spark"',
    'typer>=0.12; extra == "cli"',
    'kafkagroup[spark]; extra == "demo"',
    'kafkagroup[cli,demo]; extra == "test"',
    'kafkagroup[test]; extra == "dev"',
    'pytest>=8; extra == "test"',
    'ruff; extra == "dev"',
]


@pytest.mark.parametrize(
    ("extras", "expected"),
    [
        ([], ["pyarrow>=15"]),
        (["cli"], ["pyarrow>=15", "typer>=0.12"]),
        (["demo"], ["pyarrow>=15", "pyspark>=4.0"]),
        (["dev"], ["pyarrow>=15", "pyspark>=4.0", "typer>=0.12", "pytest>=8", "ruff"]),
    ],
)
def test_extras_bring_the_extras_that_they_name(extras: list[str], expected: list[str]) -> None:
    assert list(requirements(LINES, extras)) == expected


def test_markers_can_be_those_of_another_python():
    lines = ["kafka-python", "atheris>=3; python_version >= '3.11'"]
    assert list(requirements(lines, (), "3.10")) == ["kafka-python"]
    assert list(requirements(lines, (), "3.12")) == ["kafka-python", "atheris>=3"]
