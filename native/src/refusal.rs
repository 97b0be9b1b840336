//! The reasons why rows cannot be encoded as records: too large, an unknown partition, malformed buffers.

use std::fmt;

/// The error of [`crate::encoder::Encoder`]. Rows are numbered from 0 in each call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A column's offsets point outside its buffers, or an argument is out of its range.
    Malformed(String),
    /// A row's explicit partition does not exist in its topic.
    UnknownPartition { topic: i64, partition: i32, partitions: usize, row: usize },
    /// A record exceeds the limit. `size` is the uncompressed size of a batch with only this record.
    RecordTooLarge { topic: i64, partition: usize, row: usize, size: usize, limit: usize },
    /// A codec failed for a reason other than the rows.
    Codec(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(reason) => f.write_str(reason),
            Self::UnknownPartition { topic, partition, partitions, row } => {
                write!(f, "topic {topic}, row {row}: partition {partition} does not exist, the topic has {partitions}")
            }
            Self::RecordTooLarge { topic, partition, row, size, limit } => write!(
                f,
                "topic {topic}, partition {partition}, row {row}: a record of {size} bytes exceeds the limit of {limit}"
            ),
            Self::Codec(reason) => write!(f, "a batch could not be compressed: {reason}"),
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_row_and_its_numbers() {
        let (topic, partitions, row) = (1, 3, 4);
        for (refusal, text) in [
            (Refusal::Malformed("a reason".into()), "a reason"),
            (Refusal::UnknownPartition { topic, partition: -2, partitions, row }, "topic 1, row 4: partition -2"),
            (Refusal::RecordTooLarge { topic, partition: 2, row, size: 5, limit: 6 }, "row 4: a record of 5 bytes"),
            (Refusal::Codec("lz4".into()), "lz4"),
        ] {
            assert!(refusal.to_string().contains(text), "{refusal}");
        }
    }
}
