"""Quotas: a query's own bound in bytes and records a second, by KIP-13's mechanism.

A sensor adds up what was fetched in a window of samples (`sensor`), a quota says how long to wait (`quota`), the driver
sizes micro-batches (`admission`) and hands out what may be fetched now (`server`), and each task paces its fetches
(`pacer`). Bounds come from the options, or from a file, a URL or the brokers that are watched (`watch`).
"""

from kafka_source.quota.bounds import UNBOUNDED, Bounds
from kafka_source.quota.limiter import Quota
from kafka_source.quota.sensor import Sensor, delay_of

__all__ = ["UNBOUNDED", "Bounds", "Quota", "Sensor", "delay_of"]
