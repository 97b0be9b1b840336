//! The type of a column of values in any format, with limits of width, depth and recursion.

use std::collections::HashMap;
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
    /// Microseconds since 1970. `utc`: an instant, not a local time.
    Timestamp {
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
    /// A text of JSON, for a value of unbounded depth.
    Json,
}

/// An entry of a map column.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Slot,
    pub value: Slot,
}

impl Entry {
    /// As [`Slot::bits_of_item`].
    pub fn bits(&self) -> u64 {
        (self.key.bits() + self.value.bits()).max(8)
    }

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
    /// The field of the record, or the branch of the union (without null), that becomes this column.
    pub source: usize,
}

/// The limit on a schema's columns, because recursion and repeated types multiply columns.
pub const MAX_COLUMNS: usize = 20_000;
/// The limit on the nesting of types that Arrow's C++ library imports.
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
            Shape::Timestamp { utc } => DataType::Timestamp(TimeUnit::Microsecond, utc.then(|| Arc::from("UTC"))),
            Shape::Duration => DataType::Duration(TimeUnit::Microsecond),
            Shape::Float => DataType::Float32,
            Shape::Double => DataType::Float64,
            Shape::Binary => DataType::Binary,
            Shape::Text | Shape::Json => DataType::Utf8,
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

    /// Returns the bits of a row, without the bytes of texts and the items of lists and maps.
    pub fn bits(&self) -> u64 {
        let own = match &self.shape {
            Shape::Null => 0,
            Shape::Boolean => 1,
            Shape::Struct(parts) => parts.iter().map(|part| part.slot.bits()).sum(),
            Shape::Decimal { .. } => 128,
            Shape::Long | Shape::Timestamp { .. } | Shape::Duration | Shape::Double => 64,
            // A number, or the end of a text or list.
            _ => 32,
        };
        own + u64::from(self.nullable)
    }

    /// Returns the bits of an item of a list: at least a byte, which limits also the number of items without memory.
    pub fn bits_of_item(&self) -> u64 {
        self.bits().max(8)
    }
}

/// Returns the fields that a struct of the type `wanted` names, or all fields, with position, name and wanted type.
#[allow(clippy::type_complexity)]
pub fn chosen<T>(
    fields: impl Iterator<Item = (Arc<str>, T)>,
    wanted: Option<&DataType>,
) -> Result<Vec<(usize, Arc<str>, T, Option<&DataType>)>, Fault> {
    let all = fields.enumerate().map(|(i, (name, field))| (i, name, field));
    let Some(DataType::Struct(wanted)) = wanted else {
        return Ok(all.map(|(i, name, field)| (i, name, field, None)).collect());
    };
    let mut by_name: HashMap<_, _> = all.map(|(i, name, field)| (name.clone(), (i, name, field))).collect();
    let found = wanted.iter().map(|one| match by_name.remove(one.name().as_str()) {
        Some((i, name, field)) => Ok((i, name, field, Some(one.data_type()))),
        None => Err(Fault::new(format!("the schema has no field {}, or it is chosen twice", one.name()))),
    });
    found.collect()
}

/// Returns the wanted type of the items of a list.
pub fn item_of(wanted: Option<&DataType>) -> Option<&DataType> {
    match wanted? {
        DataType::List(item) => Some(item.data_type()),
        _ => None,
    }
}

/// Returns the wanted type of the values of a map.
pub fn value_of(wanted: Option<&DataType>) -> Option<&DataType> {
    match wanted? {
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(both) => both.get(1).map(|value| value.data_type()),
            _ => None,
        },
        _ => None,
    }
}

pub fn check_recursion(recursion: i64) -> Result<(), Fault> {
    if recursion > MAX_RECURSION {
        return Err(Fault::new(format!("the recursion depth {recursion} exceeds {MAX_RECURSION}")));
    }
    Ok(())
}
