//! The type of a column of values, whatever their format: how wide, deep and recursive it may be.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, TimeUnit};

use super::fault::Fault;

/// A column type and whether a row may be null.
#[derive(Clone, Debug)]
pub struct Slot {
    pub shape: Shape,
    pub nullable: bool,
}

#[derive(Clone, Debug)]
pub enum Shape {
    Null,
    Boolean,
    Int,
    Date,
    Long,
    /// Microseconds since 1970; `millis`: the value counts milliseconds. `utc`: an instant, not a local time.
    Timestamp {
        millis: bool,
        utc: bool,
    },
    Float,
    Double,
    Binary,
    Text,
    Decimal {
        precision: u8,
        scale: i8,
    },
    /// Microseconds.
    Duration,
    List(Box<Slot>),
    Map(Box<Entry>),
    Struct(Vec<Part>),
}

/// An entry of a map column.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Slot,
    pub value: Slot,
}

impl Entry {
    /// Returns an entry whose key is a string.
    pub fn of_text(value: Slot) -> Box<Self> {
        Box::new(Self { key: Slot { shape: Shape::Text, nullable: false }, value })
    }
}

/// A child of a struct column.
#[derive(Clone, Debug)]
pub struct Part {
    pub name: Arc<str>,
    pub slot: Slot,
    /// The field of the record, or the branch of the union, without null, that the column shows.
    pub source: usize,
}

/// A schema with more columns is refused: recursion and repeated types multiply them.
pub const MAX_COLUMNS: usize = 20_000;
/// Arrow's C++ library imports no deeper type.
pub const MAX_NESTING: usize = 64;
/// The limit of Spark's `recursiveFieldMaxDepth`.
const MAX_RECURSION: i64 = 15;

impl Slot {
    pub fn data_type(&self) -> DataType {
        match &self.shape {
            Shape::Null => DataType::Null,
            Shape::Boolean => DataType::Boolean,
            Shape::Int => DataType::Int32,
            Shape::Date => DataType::Date32,
            Shape::Long => DataType::Int64,
            Shape::Timestamp { utc, .. } => DataType::Timestamp(TimeUnit::Microsecond, utc.then(|| Arc::from("UTC"))),
            Shape::Duration => DataType::Duration(TimeUnit::Microsecond),
            Shape::Float => DataType::Float32,
            Shape::Double => DataType::Float64,
            Shape::Binary => DataType::Binary,
            Shape::Text => DataType::Utf8,
            Shape::Decimal { precision, scale } => DataType::Decimal128(*precision, *scale),
            // The names of Spark's `ArrowUtils`.
            Shape::List(item) => DataType::List(Arc::new(item.field("element"))),
            Shape::Map(entry) => {
                let fields = Fields::from(vec![entry.key.field("key"), entry.value.field("value")]);
                DataType::Map(Arc::new(Field::new("entries", DataType::Struct(fields), false)), false)
            }
            Shape::Struct(parts) => {
                DataType::Struct(parts.iter().map(|part| part.slot.field(&part.name)).collect::<Fields>())
            }
        }
    }

    pub fn field(&self, name: &str) -> Field {
        Field::new(name, self.data_type(), self.nullable)
    }

    /// Returns how many bytes a row takes at most, without the bytes of texts and the items of lists and maps.
    pub fn width(&self) -> usize {
        match &self.shape {
            Shape::Struct(parts) => 1 + parts.iter().map(|part| part.slot.width()).sum::<usize>(),
            Shape::Decimal { .. } => 17,
            // A number, or the end of a text or list, and whether it is null.
            _ => 9,
        }
    }
}

pub fn check_recursion(recursion: i64) -> Result<(), Fault> {
    if recursion > MAX_RECURSION {
        return Err(Fault::new(format!("the recursion depth {recursion} exceeds {MAX_RECURSION}")));
    }
    Ok(())
}
