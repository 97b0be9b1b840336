"""Compute the partition that Java's producer chooses for a key. The sink uses `native/src/murmur2.rs`."""

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_SHIFT = 24
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return Java's `Utils.murmur2` as an unsigned 32-bit number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _MULTIPLIER & _MASK
        k = (k ^ (k >> _SHIFT)) * _MULTIPLIER & _MASK
        h = (h * _MULTIPLIER & _MASK) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ (h >> 13)) * _MULTIPLIER & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key in a topic of `partitions` partitions (`BuiltInPartitioner.partitionForKey`)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
