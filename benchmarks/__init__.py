"""What there is to measure; see `./run bench`."""
