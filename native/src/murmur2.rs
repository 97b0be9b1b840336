//! The hash of a record's key by which Java's producer partitions (`org.apache.kafka.common.utils.Utils.murmur2`).

const MULTIPLIER: u32 = 0x5bd1_e995;
const SEED: u32 = 0x9747_b28c;
const SHIFT: u32 = 24;

pub fn murmur2(key: &[u8]) -> u32 {
    let (words, tail) = key.as_chunks::<4>();
    let mut hash = SEED ^ key.len() as u32;
    for &word in words {
        let word = u32::from_le_bytes(word).wrapping_mul(MULTIPLIER);
        hash = hash.wrapping_mul(MULTIPLIER) ^ (word ^ word >> SHIFT).wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let rest = tail.iter().rev().fold(0, |rest, &byte| rest << 8 | u32::from(byte));
        hash = (hash ^ rest).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(MULTIPLIER);
    hash ^ hash >> 15
}

/// Returns the partition of a record with this key (`BuiltInPartitioner.partitionForKey`). `partitions` must not be 0.
pub fn partition_of(key: &[u8], partitions: usize) -> usize {
    (murmur2(key) & 0x7fff_ffff) as usize % partitions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashes_are_those_of_java() {
        // From Kafka's own UtilsTest.testMurmur2.
        for (key, hash) in [
            (&b"21"[..], -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key) as i32, hash, "{key:?}");
        }
    }

    #[test]
    fn a_partition_is_one_of_those_there_are() {
        for partitions in 1..20 {
            assert!((0..100u32).all(|key| partition_of(&key.to_be_bytes(), partitions) < partitions));
        }
        assert_eq!(partition_of(b"", 1), 0);
    }

    /// `Utils.toPositive` clears the sign, so that the partitions are those of Java's producer.
    #[test]
    fn the_partitions_are_those_of_java() {
        for (key, hash) in [(&b"21"[..], -973_932_308i32), (b"foobar", -790_332_482), (b"abc", 479_470_107)] {
            for partitions in [3, 1000] {
                assert_eq!(partition_of(key, partitions), (hash & i32::MAX) as usize % partitions, "{key:?}");
            }
        }
    }
}
