"""Members of the classic protocol: a member of the group leads it, and assigns the partitions."""
