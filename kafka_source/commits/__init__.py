"""Commits of a batch's offsets: the process that commits, and its right to commit."""
