"""Tracebacks without the connector's own frames, which put 60 lines before an error's message.

Spark prints the traceback of an error, in the driver even twice. The message states the problem and the remedy, so
the connector's frames are left out; `log.level=debug` shows them.
"""

import functools
import logging
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, TypeVar, cast

from kafka_source.errors import KafkaGroupError

_Class = TypeVar("_Class", bound=type)
_Method = TypeVar("_Method", bound=Callable[..., Any])

_package = logging.getLogger("kafka_source")


def short_errors(spark_calls: _Class) -> _Class:
    """Let the public methods of a class raise kafkagroup's errors without the connector's frames.

    Args:
        spark_calls: A class whose methods Spark calls. If a method returns an iterator, the iterator's errors are
            shortened too.
    """
    for name, method in list(vars(spark_calls).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(spark_calls, name, short(method))
    return spark_calls


def short(method: _Method) -> _Method:
    """Let a method or function raise kafkagroup's errors without the connector's frames.

    Args:
        method: The method. If the method returns an iterator, the iterator's errors are shortened too.
    """

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = method(*args, **kwargs)
        except KafkaGroupError as error:
            if _package.isEnabledFor(logging.DEBUG):
                raise
            raise error.with_traceback(None) from None
        return _rows(result) if isinstance(result, Iterator) else result

    return cast("_Method", call)


def _rows(result: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from result
    except KafkaGroupError as error:
        if _package.isEnabledFor(logging.DEBUG):
            raise
        raise error.with_traceback(None) from None
