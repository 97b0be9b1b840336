//! The errors of a record set, with their place.

use std::fmt;
use std::sync::Arc;

/// The kind of an error, which decides the remedy: stop, use another engine, request other columns, or raise a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The bytes are not valid, so no broker has stored them.
    Corrupt,
    /// A message set of magic 0 or 1, which another engine must read.
    OldFormat,
    /// A valid record that the requested columns cannot represent.
    Unreadable,
    /// A batch whose records decompress to more than the limit.
    TooLarge,
}

/// A [`Kind`] with its reason, without the place.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: Kind,
    pub reason: String,
}

impl Fault {
    pub fn corrupt(reason: impl Into<String>) -> Self {
        Self { kind: Kind::Corrupt, reason: reason.into() }
    }

    pub fn unreadable(reason: impl Into<String>) -> Self {
        Self { kind: Kind::Unreadable, reason: reason.into() }
    }
}

/// A [`Fault`] with its place. `offset` is the first offset that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: Kind,
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
    pub reason: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            Kind::Corrupt => "corrupt records",
            Kind::OldFormat => "records in an old message format",
            Kind::Unreadable => "a record that the requested columns cannot represent",
            Kind::TooLarge => "a record batch that exceeds the size limit",
        };
        write!(f, "{}-{} at offset {}: {what}: {}", self.topic, self.partition, self.offset, self.reason)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_where_and_what() {
        let of = |kind| {
            Error { kind, topic: "topic".into(), partition: 3, offset: 42, reason: "because".into() }.to_string()
        };
        assert_eq!(of(Kind::Corrupt), "topic-3 at offset 42: corrupt records: because");
        for (kind, what) in [(Kind::OldFormat, "old"), (Kind::Unreadable, "columns"), (Kind::TooLarge, "size limit")] {
            assert!(of(kind).starts_with("topic-3 at offset 42: ") && of(kind).contains(what), "{}", of(kind));
        }
    }
}
