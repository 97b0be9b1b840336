//! Encodes the rows of a column of any type as values of bytes, in any format.

use std::sync::Arc;

use arrow_buffer::{Buffer, NullBufferBuilder};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};

use super::cells::Cells;
use super::fault::Fault;
use crate::arrays::Outside;

/// Encodes columns in one format.
pub trait Encode: Sync {
    /// Checks whether columns of this type can be encoded.
    fn check(&self, kind: &DataType) -> Result<(), Fault>;

    /// Encodes all rows; a null row stays null.
    fn encode(&self, cells: &Cells<'_>, rows: usize) -> Result<ArrayData, Failure>;
}

/// Writes the rows of one column.
pub trait WriteRow {
    fn is_null(&self, row: usize) -> Result<bool, Outside>;

    /// Appends the value of a row that is not null.
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Stop>;
}

/// The reason why a row cannot be written.
#[derive(Debug)]
pub enum Stop {
    Unfit(Fault),
    /// The offsets of the array point outside its buffers, or the array does not have the type that was planned.
    Outside,
}

/// The reason why a column cannot be encoded.
#[derive(Debug)]
pub enum Failure {
    /// The column's type does not fit.
    Type(Fault),
    /// The value of a row does not fit.
    Value { row: usize, fault: Fault },
    /// The offsets of the array point outside its buffers.
    Outside,
    /// The values have more than 2^31 bytes.
    TooLarge,
    /// A bug of this crate.
    Arrow(ArrowError),
}

impl From<Outside> for Stop {
    fn from(_: Outside) -> Self {
        Self::Outside
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Unfit(fault)
    }
}

impl Stop {
    #[cold]
    #[must_use]
    pub fn within(self, name: &Arc<str>) -> Self {
        match self {
            Self::Unfit(fault) => Self::Unfit(fault.within(name)),
            Self::Outside => Self::Outside,
        }
    }
}

impl From<Stop> for Failure {
    /// Converts an error that a column has before its first row is written.
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Unfit(fault) => Self::Type(fault),
            Stop::Outside => Self::Outside,
        }
    }
}

/// The expected bytes of a value, for the first allocation.
const EXPECTED: usize = 64;

/// Returns the bytes before each value in Confluent's framing; no bytes without an id.
pub fn head(id: Option<u32>) -> Vec<u8> {
    id.map_or_else(Vec::new, |id| [&[0], &id.to_be_bytes()[..]].concat())
}

/// Returns the values of all rows, each with `head` before it. A null row stays null.
#[inline]
pub fn encode_rows(head: &[u8], rows: usize, writer: &impl WriteRow) -> Result<ArrayData, Failure> {
    let mut out: Vec<u8> = Vec::with_capacity(rows.saturating_mul(EXPECTED + head.len()));
    let mut ends: Vec<i32> = Vec::with_capacity(rows + 1);
    ends.push(0);
    let mut nulls = NullBufferBuilder::new(rows);
    for row in 0..rows {
        if writer.is_null(row).map_err(|_| Failure::Outside)? {
            nulls.append_null();
        } else {
            nulls.append_non_null();
            out.extend_from_slice(head);
            writer.write(row, &mut out).map_err(|stop| match stop {
                Stop::Unfit(fault) => Failure::Value { row, fault },
                Stop::Outside => Failure::Outside,
            })?;
        }
        ends.push(i32::try_from(out.len()).map_err(|_| Failure::TooLarge)?);
    }
    ArrayData::builder(DataType::Binary)
        .len(rows)
        .add_buffer(Buffer::from_vec(ends))
        .add_buffer(Buffer::from_vec(out))
        .nulls(nulls.finish())
        .build()
        .map_err(Failure::Arrow)
}

/// Returns the position of the field with a column's name, or of the only field whose name differs in case alone.
pub fn field_of<'a>(name: &str, fields: impl Iterator<Item = &'a str> + Clone) -> Result<usize, &'static str> {
    if let Some(same) = fields.clone().position(|field| field == name) {
        return Ok(same);
    }
    let wanted = name.to_lowercase();
    let mut alike = fields.enumerate().filter(|(_, field)| field.to_lowercase() == wanted).map(|(i, _)| i);
    match (alike.next(), alike.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => Err("several fields of this name, in other cases"),
        (None, _) => Err("no field of this name"),
    }
}

/// Returns the bytes of a string, if they are UTF-8.
#[inline(always)]
pub fn utf8(bytes: &[u8]) -> Result<&[u8], Fault> {
    if std::str::from_utf8(bytes).is_err() {
        return Err(Fault::new("the string is not UTF-8"));
    }
    Ok(bytes)
}
