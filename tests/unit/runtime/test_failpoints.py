"""A failpoint does nothing but what a test has installed in the process."""

from collections.abc import Iterator

import pytest

from kafka_source.runtime.failpoints import failpoint, install


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    install(None)


def test_only_an_installed_function_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    # The variable that killed a process before there was `install`.
    monkeypatch.setenv("KAFKAGROUP_FAILPOINT", "sink-decided")
    failpoint("sink-decided")
    reached: list[str] = []
    install(reached.append)
    failpoint("sink-prepared")
    failpoint("sink-decided")
    install(None)
    failpoint("sink-committed")
    assert reached == ["sink-prepared", "sink-decided"]
