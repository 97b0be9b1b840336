"""Rules of a schema that change its values: the encryption and transformations of Confluent's data contracts.

Confluent's serializers apply such rules by executors, which this project does not have. Without these executors a
column would contain unchanged values, such as encrypted text.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_source.errors import InvalidConfigurationError


@dataclass(frozen=True, slots=True)
class SchemaRule:
    """A rule that changes values.

    Attributes:
        name: Its name in the schema's `ruleSet`.
        type: The kind of its executor, such as ENCRYPT, CEL_FIELD or JSONATA.
        tags: The tags of the changed fields; empty: all fields, or the fields of the rule's expression.
        mode: READ, WRITE or WRITEREAD.
    """

    name: str
    type: str
    tags: tuple[str, ...]
    mode: str

    def __str__(self) -> str:
        fields = f" for fields with the tag {' or '.join(self.tags)}" if self.tags else ""
        return f"{self.name} ({self.type}{fields})"

    @property
    def encrypts(self) -> bool:
        """Whether the rule encrypts fields, or whole values."""
        return self.type.startswith("ENCRYPT")


def changing_rules(answer: Mapping[str, object]) -> tuple[SchemaRule, ...]:
    """Return the rules that change values, in their order, from the registry's answer for a schema.

    Conditions change nothing, and rules of migrations belong to other versions of the schema.
    """
    rule_set = answer.get("ruleSet")
    if not isinstance(rule_set, Mapping):
        return ()
    rules = [rule for kind in ("domainRules", "encodingRules") for rule in rule_set.get(kind) or ()]
    return tuple(
        SchemaRule(
            str(rule.get("name")),
            str(rule.get("type")).upper(),
            tuple(str(tag) for tag in rule.get("tags") or ()),
            str(rule.get("mode")).upper(),
        )
        for rule in rules
        if str(rule.get("kind")).upper() == "TRANSFORM" and not rule.get("disabled")
    )


def refuse_rules(rules: tuple[SchemaRule, ...], schema: str, *, writes: bool) -> None:
    """Refuse a schema with rules that apply when values are read or written.

    Raises:
        InvalidConfigurationError: A rule applies.
    """
    mode, verb = ("WRITE", "written") if writes else ("READ", "read")
    applied = [rule for rule in rules if mode in rule.mode]
    if not applied:
        return
    text = "encrypted bytes" if any(rule.encrypts for rule in applied) else "values as they are before these rules"
    instead = "the topic would contain plain values" if writes else f"the column would contain {text}"
    how = (
        "set schema.rules=ignore to write such values"
        if writes
        else (
            "set schema.rules=ignore to read such values, and use kafkagroup.map_in_arrow to decrypt or transform them"
        )
    )
    raise InvalidConfigurationError(
        f"Rules of {schema} change values when the values are {verb}, and kafkagroup does not apply these rules: "
        f"{', '.join(map(str, applied))}. Without the rules {instead}; {how}."
    )
