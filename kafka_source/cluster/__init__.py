"""Lookups of topics, partitions and offsets in the cluster that a query reads."""
