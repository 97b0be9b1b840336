"""Questions to the cluster: which partitions exist, and which offsets they have."""
