"""Quotas: a query's own bound in bytes and records a second (KIP-13), shared by its tasks.

A task asks before it fetches (`task_pacer`), over TCP, a `server` in the stream's driver or in a process of its own.
The query's `account` of all tasks answers with the wait and the size of the fetch. The driver sizes micro-batches
(`batch_sizing`), and so that a trigger takes a wished time (`trigger_size`). `bounds` come from the options, or from a
file, a URL or the brokers.
"""
