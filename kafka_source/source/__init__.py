"""The source: batch and stream readers, and their tasks."""
