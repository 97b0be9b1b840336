"""Write records at a constant rate, also while brokers fail."""

import threading

from confluent_kafka import Producer

_TICK_SECONDS = 0.1
_FLUSH_SECONDS = 300.0


class Load:
    """Writes the numbers 0, 1, 2, … to a topic at a constant rate, until `close`.

    Args:
        servers: The brokers.
        topic: The topic.
        records_per_second: The rate; a multiple of 10.
    """

    def __init__(self, servers: str, topic: str, records_per_second: int) -> None:
        self._topic = topic
        self._records = round(records_per_second * _TICK_SECONDS)
        # Idempotent: each record is written once, even if a broker is lost. A broker that is cut off does not answer.
        lost = {"enable.idempotence": True, "message.timeout.ms": 900_000, "socket.timeout.ms": 10_000}
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, **lost})
        self._closing = threading.Event()
        self.count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def change(self, records_per_second: int) -> None:
        """Write this number of records a second from now on; a multiple of 10."""
        self._records = round(records_per_second * _TICK_SECONDS)

    def _run(self) -> None:
        while not self._closing.wait(_TICK_SECONDS):
            end = self.count + self._records
            for number in range(self.count, end):
                self._producer.produce(self._topic, key=str(number), value=str(number))
            self.count = end
            self._producer.poll(0)

    def close(self) -> None:
        """Stop, and wait until all records are written.

        Raises:
            RuntimeError: Records could not be written.
        """
        self._closing.set()
        self._thread.join()
        left = self._producer.flush(_FLUSH_SECONDS)
        # Close the producer's connections; otherwise only the end of the brokers would close them.
        del self._producer
        if left:
            raise RuntimeError(f"{left} records could not be written within {_FLUSH_SECONDS:g} s")
