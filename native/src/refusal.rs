//! Why rows cannot become records.

use std::fmt;

/// Rows are numbered from 0 in each call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A column's buffers do not hold what they claim, or an argument is out of its range.
    Malformed(String),
    /// A row asks for a partition that its topic does not have.
    UnknownPartition { topic: i64, partition: i32, partitions: usize, row: usize },
    /// A record is over the limit. `size` is that of a batch with nothing else, before compression.
    RecordTooLarge { topic: i64, partition: usize, row: usize, size: usize, limit: usize },
    /// A codec failed, which is no fault of the rows.
    Codec(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(reason) => f.write_str(reason),
            Self::UnknownPartition { topic, partition, partitions, row } => {
                write!(f, "topic {topic}, row {row}: partition {partition} is none of the topic's {partitions}")
            }
            Self::RecordTooLarge { topic, partition, row, size, limit } => write!(
                f,
                "topic {topic}, partition {partition}, row {row}: a record of {size} bytes is over the limit of {limit}"
            ),
            Self::Codec(reason) => write!(f, "a batch could not be compressed: {reason}"),
        }
    }
}

impl std::error::Error for Refusal {}
