"""The source: batch and stream readers, and what their tasks do."""
