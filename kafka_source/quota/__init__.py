"""Quotas: a query's own bound in bytes and records a second (KIP-13), shared by its tasks.

A task asks before it fetches (`task_pacer`), over TCP (`server`, in the stream's driver or in a `server_process`). The
query's `account` of all tasks answers with how long to wait and how much to fetch: a `limiter` keeps the pace, and a
`sensor` measures the rate. The driver sizes micro-batches (`batch_sizing`, `stream_quota`). `bounds` come from the
options, or from a file, a URL or the brokers (`bounds_watcher`).
"""

from kafka_source.quota.bounds import UNBOUNDED, Bounds
from kafka_source.quota.limiter import Limiter
from kafka_source.quota.sensor import Sensor, delay_of

__all__ = ["UNBOUNDED", "Bounds", "Limiter", "Sensor", "delay_of"]
