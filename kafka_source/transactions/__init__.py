"""Offset commits in transactions, and the loop over a transactional producer that KIP-1050 describes."""

from kafka_source.transactions.producer_pool import TransactionalProducers
from kafka_source.transactions.transaction import Transaction, run_transaction

__all__ = ["Transaction", "TransactionalProducers", "run_transaction"]
