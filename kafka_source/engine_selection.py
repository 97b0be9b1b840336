"""The choice of a query's engine, native or librdkafka, and the checks of features that need the native kernel."""

import logging
import socket
import sys
from functools import cache, lru_cache
from importlib import import_module
from typing import Literal, TypeVar

from kafka_source.client_config import Settings
from kafka_source.client_config.check import check_settings
from kafka_source.client_config.java_settings import Role
from kafka_source.errors import InvalidConfigurationError
from kafka_source.version import __version__

log = logging.getLogger(__name__)

_Name = TypeVar("_Name", bound=str)

NATIVE_MODULE = "kafkagroup_native"

#: The number of the kernel's interface that this version calls. `native/src/python/mod.rs` has the same number. Raise
#: both numbers with every change of `native/kafkagroup_native.pyi`. So a kernel of the same version from other sources
#: is detected before a task calls it.
INTERFACE = 10

_INSTALL = f"`pip install kafkagroup-native=={__version__}` (in a clone: `pip install ./native`)"


@cache
def why_not_native() -> str | None:
    """Return why this process cannot use the native engine, or None if it can.

    Load the native module, and compare its version and interface number with those of this package. The answer is kept,
    because a process cannot load another module later.
    """
    where = f"in {sys.prefix} on {socket.gethostname()}"
    try:
        kernel = import_module(NATIVE_MODULE)
    except ModuleNotFoundError as error:
        if error.name == NATIVE_MODULE:
            return f"the package kafkagroup-native is not installed {where}"
        return f"the package kafkagroup-native {where} is not complete: {error}"
    except Exception as error:
        # Usually an ImportError: the file is damaged, or built for another machine or C library.
        return f"the package kafkagroup-native {where} cannot be loaded: {error}"
    version, interface = getattr(kernel, "__version__", None), getattr(kernel, "INTERFACE", None)
    if (version, interface) != (__version__, INTERFACE):
        return (
            f"the package kafkagroup-native {where} has version {version} (interface {interface}), but kafkagroup "
            f"{__version__} needs version {__version__} (interface {INTERFACE})"
        )
    return None


def is_native(name: str) -> bool:
    """Return whether this process uses the native engine; with `auto`, warn once if it does not.

    Args:
        name: The `engine` option: native, librdkafka or auto.

    Raises:
        InvalidConfigurationError: The option is `native`, and this process cannot use the native engine.
    """
    if name == "librdkafka":
        return False
    reason = why_not_native()
    if reason is None:
        return True
    if name == "native":
        raise InvalidConfigurationError(
            f"engine=native, but {reason}. Run {_INSTALL} there, or use engine=auto or librdkafka."
        )
    _warn(f"{reason}: the slower librdkafka engine serves (engine=auto). Run {_INSTALL} there for the native engine")
    return False


def engine_of_tasks(name: _Name) -> _Name | Literal["librdkafka"]:
    """Return the `engine` option for a query's tasks: librdkafka if `auto` means librdkafka in the driver.

    So tasks do not repeat the driver's warning about `auto`. An executor logs a warning if it lacks the driver's
    engine; see `is_native`.
    """
    return "librdkafka" if name == "auto" and why_not_native() is not None else name


def check_value_kernel(option: str = "value.format=avro") -> None:
    """Check that this process can decode and encode values.

    Args:
        option: The option that needs the kernel, for the error.

    Raises:
        InvalidConfigurationError: The kernel is not installed.
    """
    reason = why_not_native()
    if reason is not None:
        raise InvalidConfigurationError(f"{option}, but {reason}. Install the package, on the executors too.")


def check_engine(name: str, settings: Settings, role: Role = Role.CONSUMER, *, native: bool | None = None) -> None:
    """Check the engine and its settings where the query is planned, and log warnings about them once.

    Args:
        name: The `engine` option.
        settings: Settings of the Kafka clients.
        role: CONSUMER in a read, PRODUCER in a write.
        native: Whether the native engine is used; None: call `is_native`.

    Raises:
        OptionError: A setting is refused, or has an invalid value.
        InvalidConfigurationError: The option is `native`, and this process cannot use the native engine.
    """
    for warning in check_settings(settings, role, native=is_native(name) if native is None else native):
        _warn(warning, repr(settings))


# A query is checked several times in one process. Only the warning's text is kept, which shows no secret.
@lru_cache(maxsize=128)
def _warn(warning: str, settings: str = "") -> None:
    log.warning("%s", warning)
