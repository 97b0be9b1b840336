"""Quotas: a query's own bound in bytes and records a second (KIP-13), shared by its tasks.

Before a fetch, a task (`task_pacer`) sends a request over TCP to a `server` in the stream's driver or in a process of
its own. The server's `account`, which the query's tasks share, answers with the wait and the size of the fetch. The
driver sizes micro-batches for the quota (`batch_sizing`) and for a trigger's duration (`trigger_size`). `bounds` come
from the options, a file, a URL or the brokers.
"""
