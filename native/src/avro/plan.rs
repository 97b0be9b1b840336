//! The operations that decode a value of a writer schema into columns of the reader schema.

use std::sync::Arc;

use super::schema::{Id, Schema};
use super::skip::{Skip, Skips};
use crate::values::fault::Fault;

/// Decodes a written value into a row of a column, by the column's type.
#[derive(Debug)]
pub enum Op {
    Null,
    Boolean,
    Int,
    Long,
    /// A date or time whose unit is this many of the column's units.
    IntTimes(i64),
    LongTimes(i64),
    /// A time whose column has a unit of this many of the time's units. A time that is no multiple of this unit is bad.
    LongParts(i64),
    /// An int or long that is a float in the reader schema, so it may lose digits, even if the column is a double.
    IntAsFloat,
    LongAsFloat,
    Float,
    Double,
    /// Bytes or a string.
    Bytes,
    Fixed(usize),
    /// A decimal: the size of its fixed type, and how many more digits the column has after the point.
    Decimal {
        size: Option<usize>,
        shift: i32,
    },
    /// The reader's symbol for each symbol of the writer; None: the reader has neither the symbol nor a default.
    Enum(Vec<Option<Arc<str>>>),
    Record(Box<Record>),
    Array(Box<Items>),
    Map(Box<Items>),
    /// A union of the writer.
    Union(Vec<Op>),
    /// A branch of the reader's union. The union becomes a struct; `part` is None if the struct lacks this branch.
    Member {
        part: Option<usize>,
        op: Box<Op>,
        skip: Skip,
    },
    /// A value of the writer's type that becomes a text of JSON.
    Json(Id),
    /// A part that cannot be resolved: an error, but only for values that have this part.
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
    /// Decodes `bytes`, which are encoded by the reader schema.
    pub plan: Plan,
}

#[derive(Debug)]
pub struct Items {
    pub op: Op,
    /// The memory of an item in bits, without its texts and inner items.
    pub bits: u64,
}

/// The decoding of values of one writer schema.
#[derive(Debug)]
pub struct Plan {
    pub op: Op,
    pub skips: Skips,
    /// The schema of the values, if a part of them becomes JSON.
    pub writer: Option<Schema>,
}
