"""A simulated world: our real code with virtual time, simulated brokers, and faults that a seed determines."""
