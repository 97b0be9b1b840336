"""Spark finds the format by this module name."""
