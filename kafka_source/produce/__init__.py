"""Producing records: one interface, and the two engines behind it."""
