"""Simulated brokers: logs, leaders, and the coordinators of groups and transactions."""
