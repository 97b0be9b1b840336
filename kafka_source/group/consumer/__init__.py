"""Slots as members of the consumer protocol (KIP-848): the brokers assign, and each slot has an epoch of its own."""
