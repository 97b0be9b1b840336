"""A long run of queries on a real cluster, in which everything is killed at random."""
