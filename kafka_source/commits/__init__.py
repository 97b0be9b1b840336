"""Commits of a batch: which process commits, and with which right."""
