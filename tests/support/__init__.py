"""Helpers of the tests: brokers, groups, queries and records, and one way to wait."""
