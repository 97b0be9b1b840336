"""Transactions: commits of groups' offsets, and a public helper for loops with confluent-kafka producers (KIP-1050)."""

from kafka_source.transactions.producers import TransactionalProducers
from kafka_source.transactions.transactional_loop import Transaction, run_transaction

__all__ = ["Transaction", "TransactionalProducers", "run_transaction"]
