"""Benchmarks; `./run bench` lists them."""
