"""Plain values that the other packages share: the stream's offset, the topics of a query, the identity of a cluster."""
