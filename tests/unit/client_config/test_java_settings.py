"""The page of Java's settings; tests/differential compares the settings themselves with the jar."""

from pathlib import Path

from kafka_source.client_config.java_settings import as_markdown


def test_the_docs_have_the_table_of_settings() -> None:
    page = Path(__file__).parents[3] / "docs" / "kafka-settings.md"
    assert page.read_text(encoding="utf-8").endswith(as_markdown()), "run: ./run docs"
