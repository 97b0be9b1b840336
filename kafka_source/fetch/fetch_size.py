"""The size of the fetches from one broker, which grows if the broker is far away. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

NEAR_BYTES = 8 << 20
"""The size at the beginning: from a broker nearby 16 MiB gain little, and take twice the memory."""

FAR_BYTES = 32 << 20
"""The largest size, which bounds the memory of a worker."""


@dataclass(slots=True)
class FetchSize:
    """How many bytes to ask a broker for at most.

    The next request leaves when a response has arrived, so its round trip passes while that response is decoded. Where
    the round trip is longer, larger responses give the task more to decode meanwhile.

    Args:
        most: The largest size; `fetch.max.bytes` can lower it.

    Attributes:
        bytes: The size of the next fetch.
    """

    most: int = FAR_BYTES
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.bytes = min(NEAR_BYTES, self.most)

    def received(self, size: int, *, waited: float, taken: float, throttled: bool) -> None:
        """Note a response.

        Args:
            size: Its size in bytes.
            waited: Seconds of its round trip in which the task had nothing to do but to wait.
            taken: Seconds from its first byte until its records were passed on.
            throttled: Whether a quota holds this client back: then larger responses only lead to longer pauses.
        """
        if throttled:
            self.bytes = min(NEAR_BYTES, self.bytes)
        elif waited > taken and size > self.bytes // 2:
            self.bytes = min(self.most, self.bytes * 2)
