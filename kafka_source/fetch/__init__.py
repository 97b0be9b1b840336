"""Engines: what fetches ranges of offsets into Arrow record batches."""
