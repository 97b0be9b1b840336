"""Makes the fetch engine of this worker process once; `engine_selection` chooses the engine."""

from kafka_source.client_config import Settings
from kafka_source.engine_selection import is_native
from kafka_source.fetch import librdkafka
from kafka_source.fetch.engine import FetchEngine


def engine_for(name: str, settings: Settings) -> FetchEngine:
    """Return the engine of this worker process for these settings; later tasks get the same engine.

    Args:
        name: The `engine` option: native, librdkafka or auto.
        settings: Kafka client settings.

    Raises:
        InvalidConfigurationError: The option `engine` is `native`, and this process cannot use the native engine.
    """
    if is_native(name):
        # This import needs the Rust kernel, which some machines lack.
        from kafka_source.fetch import native_reader

        return native_reader.engine(settings)
    return librdkafka.engine(settings)
