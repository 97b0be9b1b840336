"""The reference of all settings of Java's clients, for docs/kafka-settings.md."""

from __future__ import annotations

from kafka_source.client_config.java_settings import SECTIONS, Handling, JavaSetting, Role

_ROLES = {Role.CONSUMER: "consumer", Role.PRODUCER: "producer", Role.ADMIN: "admin"}


def as_markdown() -> str:
    """Return the tables of docs/kafka-settings.md."""
    lines: list[str] = []
    for heading, settings in SECTIONS.items():
        lines += [f"## {heading}", ""]
        lines += ["| setting | client | takes | native | librdkafka | here |", "| --- | --- | --- | --- | --- | --- |"]
        lines += [_row(one) for one in sorted(settings, key=lambda one: one.name)]
        lines += [""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _row(java: JavaSetting) -> str:
    clients = "all" if java.roles is Role.ALL else ", ".join(word for role, word in _ROLES.items() if role & java.roles)
    librdkafka = java.librdkafka.value
    if java.librdkafka is Handling.MAPPED:
        librdkafka = f"`{java.rdkafka}`"
    return f"| `{java.name}` | {clients} | {java.takes} | {java.native.value} | {librdkafka} | {java.does} |"
