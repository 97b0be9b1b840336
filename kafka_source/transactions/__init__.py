"""Offset commits in transactions, and the loop over a transactional producer that KIP-1050 describes."""
