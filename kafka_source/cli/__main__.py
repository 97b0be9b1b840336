"""`python -m kafka_source.cli`: the command where its script is not on the PATH."""

from __future__ import annotations

from kafka_source.cli import main

main()
