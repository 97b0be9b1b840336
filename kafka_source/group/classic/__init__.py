"""Members of the classic protocol, in which one member leads the group and assigns the partitions."""
