"""Log lines with named fields: readable as text, and one JSON object for machines.

The fields travel in `record.context`, where Spark's own `pyspark.logger` has them, so that both our JSON format and
Spark's capture of worker logs show them by name.
"""

from __future__ import annotations

import json
import logging
import time

Value = str | int | float | bool | None
"""The value of a field; None: unknown."""


def log_event(log: logging.Logger, level: int, event: str, **fields: Value) -> None:
    """Log one event.

    Args:
        log: The logger.
        level: The level, such as `logging.INFO`.
        event: The event's name, the first word of the line and the field `event` of the JSON.
        fields: What is known of it, in the order of the line.
    """
    if log.isEnabledFor(level):
        text = " ".join([event, *(f"{name}={_text(value)}" for name, value in fields.items())])
        log.log(level, "%s", text, extra={"context": {"event": event, **fields}})


def _text(value: Value) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, str) and (not value or any(sign.isspace() or sign in "'\"" for sign in value)):
        return repr(value)
    return str(value)


class JsonFormatter(logging.Formatter):
    """One JSON object for each record, with the names of `pyspark.logger`: ts, level, logger, msg, context, exception.

    `ts` is UTC in ISO 8601 with milliseconds. `context` has the fields of `log_event`, and is absent from other
    records. `exception` is the traceback as text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, object] = {
            "ts": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "msg": record.getMessage(),
        }
        context = getattr(record, "context", None)
        if context:
            entry["context"] = context
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)
