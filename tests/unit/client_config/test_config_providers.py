"""`config.providers`: values from files, folders and the environment, resolved by each process and never shown."""

import logging
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_source.client_config import Settings, hidden, librdkafka_config
from kafka_source.client_config.config_providers import resolve
from kafka_source.client_config.librdkafka import DEFAULTS
from kafka_source.errors import OptionError

CLASSES = "org.apache.kafka.common.config.provider."


def settings(kind: str, params: dict[str, str] | None = None, **values: str) -> Settings:
    """Settings with one provider, `mine`, of a class."""
    named = {f"config.providers.mine.param.{name}": value for name, value in (params or {}).items()}
    provider = {"config.providers": "mine", "config.providers.mine.class": f"{CLASSES}{kind}ConfigProvider"}
    return Settings({**provider, **named, **{name.replace("_", "."): value for name, value in values.items()}})


def test_a_file_in_javas_format_of_properties(tmp_path: Path) -> None:
    file = tmp_path / "secrets.properties"
    file.write_text(
        "# a comment\n! another = one\n\n"
        "user=alice\n"
        "  password : p\\=w\\u00e4 \\\n     rd\n"
        "with\\ blank  its value\n"
        "empty\n",
        encoding="utf-8",
    )
    found = settings(
        "File",
        sasl_username=f"${{mine:{file}:user}}",
        sasl_password=f"${{MINE:{file}:password}}",
        client_id=f"a-${{mine:{file}:with blank}}-${{mine:{file}:empty}}-z",
    )
    assert found["sasl.username"] == "alice"
    assert found["sasl.password"] == "p=wä rd"
    assert found["client.id"] == "a-its value--z"
    assert librdkafka_config(found)["client.id"] == "a-its value--z"


def test_a_folder_with_one_file_for_each_value(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("word-of-the-folder", encoding="utf-8")
    (tmp_path.parent / "outside").write_text("not for you", encoding="utf-8")
    assert (
        settings("Directory", sasl_password=f"${{mine:{tmp_path}:password}}")["sasl.password"] == "word-of-the-folder"
    )
    for name in ("../outside", "nothing"):
        with pytest.raises(OptionError, match="a key that its provider mine has"):
            dict(settings("Directory", sasl_password=f"${{mine:{tmp_path}:{name}}}"))


def test_the_environment_of_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_WORD", "first")
    ours = settings("EnvVar", {"allowlist.pattern": "KAFKA_.*"}, sasl_password="${mine:KAFKA_WORD}")
    assert ours["sasl.password"] == "first"
    sent = pickle.dumps(ours)
    assert b"first" not in sent
    monkeypatch.setenv("KAFKA_WORD", "second")
    assert pickle.loads(sent)["sasl.password"] == "second"
    assert pickle.loads(sent) == ours
    with pytest.raises(OptionError, match=r"allowlist\.pattern"):
        dict(settings("EnvVar", {"allowlist.pattern": "KAFKA_.*"}, client_id="${mine:HOME}"))


def test_no_resolved_value_is_shown(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("KAFKA_WORD", "topsecret")
    ours = settings("EnvVar", client_id="${mine:KAFKA_WORD}", request_timeout_ms="${mine:KAFKA_WORD}")
    assert ours["client.id"] == "topsecret"
    logging.getLogger("test").warning("settings: %s %r %s", ours, ours, hidden(ours))
    with pytest.raises(OptionError, match=r"\$\{mine:KAFKA_WORD\}") as caught:
        ours.seconds("request.timeout.ms", 1)
    assert "topsecret" not in caplog.text + str(caught.value) + repr(vars(caught.value))


def test_files_outside_of_the_allowed_paths_are_not_read(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "f").write_text("k=v", encoding="utf-8")
    (inside / "link").symlink_to(outside / "f")
    allowed = {"allowed.paths": f"{inside}, /nowhere"}
    assert settings("File", allowed, client_id=f"${{mine:{inside / 'f'}:k}}")["client.id"] == "v"
    for path in (outside / "f", inside / "link", inside / ".." / "outside" / "f"):
        with pytest.raises(OptionError, match=r"param\.allowed\.paths"):
            dict(settings("File", allowed, client_id=f"${{mine:{path}:k}}"))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"config.providers": "a"}, "kafka.config.providers.a.class"),
        ({"config.providers": "a", "config.providers.a.class": "my.Vault"}, "kafka.config.providers.a.class"),
    ],
)
def test_a_provider_that_is_a_java_class_is_refused(values: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError) as caught:
        dict(Settings(values))
    assert caught.value.option == named


def test_a_missing_file_names_the_variable() -> None:
    with pytest.raises(OptionError, match=r"kafka\.client\.id got '\$\{mine:/no/such:k\}'.*No such file"):
        dict(settings("File", client_id="${mine:/no/such:k}"))


def test_variables_of_no_provider_stay_as_they_are() -> None:
    assert Settings({"client.id": "${file:/x:y}"})["client.id"] == "${file:/x:y}"
    assert settings("EnvVar", client_id="${other:X} $ {} ${X}")["client.id"] == "${other:X} $ {} ${X}"


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_what_java_writes_is_read_back(tmp_path_factory: pytest.TempPathFactory, entries: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))

    if any(ord(one) > 0xFFFF or 0xD800 <= ord(one) < 0xE000 for text in (*entries, *entries.values()) for one in text):
        return
    file = tmp_path_factory.mktemp("properties") / "f"
    file.write_text("".join(f"{escaped(key)}={escaped(value)}\n" for key, value in entries.items()), encoding="ascii")
    for key, value in entries.items():
        if "}" in key or ":" in key:
            continue
        provider = {"config.providers": "f", "config.providers.f.class": f"{CLASSES}FileConfigProvider"}
        assert resolve({**provider, "client.id": f"${{f:{file}:{key}}}"})["client.id"] == value


def test_each_process_has_its_own_rack(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = pickle.dumps(Settings({"client.rack": "env:RACK_OF_THIS_TEST"}))
    monkeypatch.delenv("RACK_OF_THIS_TEST", raising=False)
    assert "client.rack" not in pickle.loads(sent)
    monkeypatch.setenv("RACK_OF_THIS_TEST", "eu-1a")
    assert pickle.loads(sent)["client.rack"] == "eu-1a"
    assert librdkafka_config(pickle.loads(sent)) == {**DEFAULTS, "client.rack": "eu-1a"}
