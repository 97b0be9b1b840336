//! What can be wrong with a record set, and where.

use std::fmt;
use std::sync::Arc;

/// The reader's four ways out: stop, fall back, change the asked columns, or raise a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The bytes are not what a broker stored.
    Corrupt,
    /// A message set of magic 0 or 1: another engine must read it.
    OldFormat,
    /// A well-formed record that the columns asked for cannot show.
    Unreadable,
    /// A batch that unpacks to more than the limit.
    TooLarge,
}

/// A [`Kind`] with its reason, before the place is known.
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

/// A fault with its place. `offset` is the first offset that could not be read.
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
            Kind::Unreadable => "a record that the columns asked for cannot show",
            Kind::TooLarge => "a record batch over the size limit",
        };
        write!(f, "{}-{} at offset {}: {what}: {}", self.topic, self.partition, self.offset, self.reason)
    }
}

impl std::error::Error for Error {}
