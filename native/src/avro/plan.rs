//! The operations that decode a value of a writer schema into columns of the reader schema.

use std::sync::Arc;

use super::schema::{Id, Schema};
use super::skip::{Skip, Skips};
use crate::values::fault::Fault;

/// Decodes a value, as it was written, into a row of a column. The column's type says into what.
#[derive(Debug)]
pub enum Op {
    Null,
    Boolean,
    Int,
    Long,
    /// A date or time that the column counts in smaller units, so many of them in each.
    IntTimes(i64),
    LongTimes(i64),
    /// And in larger ones: it is bad if it has a part of one.
    LongParts(i64),
    /// An int or long that the reader's schema has as float, which may lose digits, also in a double column.
    IntAsFloat,
    LongAsFloat,
    Float,
    Double,
    /// Bytes or a string.
    Bytes,
    Fixed(usize),
    /// A decimal: the size of its fixed type, and how many digits more the column has after the point.
    Decimal {
        size: Option<usize>,
        shift: i32,
    },
    /// The reader's symbol for each of the writer's; None: there is none, and no default.
    Enum(Vec<Option<Arc<str>>>),
    Record(Box<Record>),
    Array(Box<Items>),
    Map(Box<Items>),
    /// A union of the writer.
    Union(Vec<Op>),
    /// A branch of a union of the reader that is a struct: the part of it, if it is not left out.
    Member {
        part: Option<usize>,
        op: Box<Op>,
        skip: Skip,
    },
    /// A value of the writer's type that becomes a text of JSON.
    Json(Id),
    /// What cannot be resolved. It is an error only if a value has it.
    Error(Fault),
}

#[derive(Debug)]
pub struct Record {
    pub steps: Vec<Step>,
    pub defaults: Vec<Default>,
}

/// A field of the writer.
#[derive(Debug)]
pub struct Step {
    pub name: Arc<str>,
    pub action: Action,
}

#[derive(Debug)]
pub enum Action {
    Read { part: usize, op: Op },
    Skip(Skip),
}

/// A field that the writer does not have.
#[derive(Debug)]
pub struct Default {
    pub name: Arc<str>,
    pub part: usize,
    pub bytes: Vec<u8>,
    /// How the bytes, which the reader schema wrote, are decoded.
    pub plan: Plan,
}

#[derive(Debug)]
pub struct Items {
    pub op: Op,
    /// How many bits an item takes, without its texts and the items in it.
    pub bits: u64,
}

/// How values of one writer schema are decoded.
#[derive(Debug)]
pub struct Plan {
    pub op: Op,
    pub skips: Skips,
    /// The schema of the values, if a part of them becomes JSON.
    pub writer: Option<Schema>,
}
