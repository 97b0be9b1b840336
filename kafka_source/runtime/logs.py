"""Destination and format of log lines in Spark's Python processes (`log.level`, `log.format`); one-time lines.

By default, warnings go to standard error in Spark's form. A query's options `log.level` and `log.format`, or the
variables `KAFKAGROUP_LOG_LEVEL` and `KAFKAGROUP_LOG_FORMAT`, change level and format. If Spark captures the log of a
worker (4.1 and later, `spark.sql.pyspark.worker.logging.enabled`), Spark gets the records with level, logger and
fields. The fields are in `record.context`, as in Spark's own `pyspark.logger`, so that the JSON format and Spark's
capture show them by name.
"""

import functools
import json
import logging
import os
import sys
import time
from collections.abc import Hashable

Value = str | int | float | bool | None
"""The value of a field; None: unknown."""


def log_event(log: logging.Logger, level: int, event: str, **fields: Value) -> None:
    """Log one event.

    Args:
        log: The logger.
        level: The level, such as `logging.INFO`.
        event: The event's name, the first word of the line and the field `event` of the JSON.
        fields: The event's known fields, in the order of the line.
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


LEVEL = "KAFKAGROUP_LOG_LEVEL"
FORMAT = "KAFKAGROUP_LOG_FORMAT"
JSON = "json"
_PACKAGE = "kafka_source"
# As in Spark's log4j2 settings: `26/11/24 03:50:12 WARN TaskSetManager: …`.
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME = "%y/%m/%d %H:%M:%S"
# Spark's module and class for the capture of a worker's log.
_CAPTURE_MODULE, _CAPTURE_FORMATTER = "pyspark.logger.worker_io", "JSONFormatterWithMarker"


class TextFormatter(logging.Formatter):
    """Writes lines like Spark's own, with WARN for a warning."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line."""
        return super().format(record).replace(" WARNING ", " WARN ", 1)


class WorkerHandler(logging.Handler):
    """Writes to standard error, or to Spark's capture while Spark captures this process' log.

    Attributes:
        yields: Whether handlers of the root logger, if it has handlers, get the records instead.
    """

    yields = True

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        # Checked for each record, because Spark captures the log of one task or call, and reuses the process.
        if self.yields and logging.getLogger().handlers:
            return
        capture = spark_capture()
        if capture is not None:
            capture.handle(record)
            return
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def spark_capture() -> logging.Handler | None:
    """Return the handler with which Spark captures this process' log now, or None.

    During the capture, Spark also takes each line of standard error as a record of level ERROR.
    """
    formatter = getattr(sys.modules.get(_CAPTURE_MODULE), _CAPTURE_FORMATTER, None)
    if formatter is None:
        return None
    return next((h for h in logging.getLogger().handlers if isinstance(h.formatter, formatter)), None)


def set_up_logging(level: str | None = None, form: str | None = None) -> None:
    """Send this package's log to standard error, or to Spark's capture, by the options of one query.

    A process serves several queries, so a query's settings hold until the next query calls this function. A query
    without these options logs warnings in Spark's form. If the root logger has handlers, they get the records instead.
    If the program has configured this package's logging itself, nothing is changed.

    Args:
        level: The option `log.level`; None: the level in the variable `KAFKAGROUP_LOG_LEVEL`. If neither
            is set and the format is JSON, the level is WARNING.
        form: The option `log.format`, `text` or `json`; None: the variable `KAFKAGROUP_LOG_FORMAT`, or text.
    """
    chosen_form = (form or os.environ.get(FORMAT, "")).lower()
    number = logging.getLevelName((level or os.environ.get(LEVEL, "")).upper())
    is_asked = isinstance(number, int) or chosen_form == JSON
    package = logging.getLogger(_PACKAGE)
    ours = [one for one in package.handlers if isinstance(one, WorkerHandler)]
    if package.handlers and not ours:
        return
    handler = ours[0] if ours else WorkerHandler()
    if not ours:
        package.addHandler(handler)
    handler.setFormatter(_formatter(chosen_form))
    if is_asked:
        package.setLevel(number if isinstance(number, int) else logging.WARNING)
    elif not handler.yields:
        package.setLevel(logging.NOTSET)
    handler.yields = package.propagate = not is_asked


@functools.cache
def _formatter(form: str) -> logging.Formatter:
    return JsonFormatter() if form == JSON else TextFormatter(_TEXT, _TIME)


_happened: set[Hashable] = set()


def once(what: Hashable) -> bool:
    """Return True at the first call with this value in this process, and False at every later call."""
    if what in _happened:
        return False
    _happened.add(what)
    return True
