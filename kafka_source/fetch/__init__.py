"""Fetch engines, which read ranges of offsets into Arrow record batches."""
