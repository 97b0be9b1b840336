//! Encodes the rows of an array as JSON texts, as Spark's `to_json` does.

use std::sync::Arc;

use arrow_data::ArrayData;
use arrow_schema::{DataType, TimeUnit};

use super::texts;
use crate::arrays::{Outside, Validity};
use crate::values::cells::{Cells, Lists, Texts, Whole};
use crate::values::encode::{Encode, Failure, Stop, WriteRow, encode_rows, head, utf8};
use crate::values::fault::{ENTRY, Fault, ITEM};
use crate::values::spark_names;

/// Encodes structs, lists and maps.
pub struct Encoder {
    head: Vec<u8>,
}

impl Encoder {
    /// Makes an encoder. `id`: the id of a JSON Schema in a registry, for Confluent's framing; None: no framing.
    pub fn new(id: Option<u32>) -> Self {
        Self { head: head(id) }
    }
}

impl Encode for Encoder {
    fn check(&self, kind: &DataType) -> Result<(), Fault> {
        if let DataType::Struct(_) | DataType::List(_) | DataType::LargeList(_) | DataType::Map(..) = kind {
            return check(kind);
        }
        let name = spark_names::of_column(kind);
        Err(Fault::new(format!("the column has {name}, but JSON needs a struct, an array or a map")))
    }

    fn encode(&self, cells: &Cells<'_>, rows: usize) -> Result<ArrayData, Failure> {
        self.check(cells.kind).map_err(Failure::Type)?;
        encode_rows(&self.head, rows, &Writer::new(cells)?)
    }
}

fn check(kind: &DataType) -> Result<(), Fault> {
    match kind {
        DataType::Null
        | DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal128(..)
        | DataType::Date32
        | DataType::Timestamp(TimeUnit::Microsecond, _)
        | DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Binary
        | DataType::LargeBinary => Ok(()),
        DataType::List(item) | DataType::LargeList(item) => {
            check(item.data_type()).map_err(|fault| fault.within(&ITEM))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(parts) => match parts.as_ref() {
                [key, value] if matches!(key.data_type(), DataType::Utf8 | DataType::LargeUtf8) => {
                    check(value.data_type()).map_err(|fault| fault.within(&ENTRY))
                }
                _ => Err("the keys of a map must be strings: cast them".into()),
            },
            _ => Err("a map without entries".into()),
        },
        DataType::Struct(fields) => fields.iter().try_for_each(|field| {
            check(field.data_type()).map_err(|fault| fault.within(&field.name().as_str().into()))
        }),
        other => Err(Fault::new(format!("{} cannot be written as JSON", spark_names::of_column(other)))),
    }
}

/// A column and how it is written.
struct Writer<'a> {
    validity: Validity<'a>,
    first: usize,
    op: Op<'a>,
}

enum Op<'a> {
    Null,
    Boolean(&'a [u8]),
    Whole(Whole<'a>),
    Float(&'a [[u8; 4]]),
    Double(&'a [[u8; 8]]),
    Decimal(&'a [[u8; 16]], i8),
    Date(Whole<'a>),
    Timestamp { values: Whole<'a>, utc: bool },
    Text(Texts<'a>),
    Binary(Texts<'a>),
    List(Lists<'a>, Box<Writer<'a>>),
    Map(Lists<'a>, Box<[Writer<'a>; 2]>),
    Struct(Vec<Part<'a>>),
}

struct Part<'a> {
    name: Arc<str>,
    /// The name in quotation marks, with the colon.
    key: Vec<u8>,
    writer: Writer<'a>,
}

impl<'a> Writer<'a> {
    /// Makes a writer of a column whose type was checked.
    fn new(cells: &'a Cells<'a>) -> Result<Self, Stop> {
        let (values, child) = (cells.values, |i: usize| cells.children.get(i).ok_or(Stop::Outside));
        let op = match cells.kind {
            DataType::Null => Op::Null,
            DataType::Boolean => Op::Boolean(values),
            DataType::Float32 => Op::Float(values.as_chunks().0),
            DataType::Float64 => Op::Double(values.as_chunks().0),
            DataType::Decimal128(_, scale) => Op::Decimal(values.as_chunks().0, *scale),
            DataType::Date32 => Op::Date(cells.whole()),
            DataType::Timestamp(_, zone) => Op::Timestamp { values: cells.whole(), utc: zone.is_some() },
            DataType::Utf8 | DataType::LargeUtf8 => Op::Text(cells.texts()),
            DataType::Binary | DataType::LargeBinary => Op::Binary(cells.texts()),
            DataType::List(_) | DataType::LargeList(_) => Op::List(cells.lists(), Box::new(Self::new(child(0)?)?)),
            DataType::Map(..) => {
                let [keys, values] = child(0)?.children.as_slice() else { return Err(Stop::Outside) };
                Op::Map(cells.lists(), Box::new([Self::new(keys)?, Self::new(values)?]))
            }
            DataType::Struct(fields) => {
                let parts = fields.iter().zip(&cells.children).map(|(field, part)| {
                    let mut key = vec![];
                    texts::string(field.name().as_bytes(), &mut key);
                    key.push(b':');
                    Ok(Part { name: field.name().as_str().into(), key, writer: Self::new(part)? })
                });
                Op::Struct(parts.collect::<Result<_, Stop>>()?)
            }
            _ => Op::Whole(cells.whole()),
        };
        Ok(Self { validity: cells.validity, first: cells.first, op })
    }

    /// Appends the value of a row, or a JSON null.
    fn write_or_null(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
        if self.is_null(row)? {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        self.write(row, out)
    }
}

impl WriteRow for Writer<'_> {
    #[inline]
    fn is_null(&self, row: usize) -> Result<bool, Outside> {
        // A column of nulls has no validity.
        Ok(matches!(self.op, Op::Null) || !self.validity.is_set(self.first + row)?)
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
        let at = self.first + row;
        match &self.op {
            Op::Null => out.extend_from_slice(b"null"),
            Op::Boolean(bits) => {
                let is_set = bits.get(at / 8).ok_or(Outside)? >> (at % 8) & 1 == 1;
                out.extend_from_slice(if is_set { b"true" } else { b"false" });
            }
            Op::Whole(values) => texts::whole(values.get(at)?, out),
            Op::Float(values) => texts::single(f32::from_le_bytes(*values.get(at).ok_or(Outside)?), out),
            Op::Double(values) => texts::double(f64::from_le_bytes(*values.get(at).ok_or(Outside)?), out),
            Op::Decimal(values, scale) => {
                texts::decimal(i128::from_le_bytes(*values.get(at).ok_or(Outside)?), *scale, out);
            }
            Op::Date(values) => texts::date(values.get(at)?, out),
            Op::Timestamp { values, utc } => texts::timestamp(values.get(at)?, *utc, out),
            Op::Text(values) => texts::string(utf8(values.get(at)?)?, out),
            Op::Binary(values) => texts::base64(values.get(at)?, out),
            Op::List(lists, items) => {
                out.push(b'[');
                let (start, end) = lists.get(at)?;
                for item in start..end {
                    if item > start {
                        out.push(b',');
                    }
                    items.write_or_null(item, out).map_err(|stop| stop.within(&ITEM))?;
                }
                out.push(b']');
            }
            Op::Map(lists, both) => {
                let [keys, values] = both.as_ref();
                out.push(b'{');
                let (start, end) = lists.get(at)?;
                for entry in start..end {
                    if entry > start {
                        out.push(b',');
                    }
                    if keys.is_null(entry)? {
                        return Err(Fault::new("a key of the map is null").into());
                    }
                    keys.write(entry, out)?;
                    out.push(b':');
                    values.write_or_null(entry, out).map_err(|stop| stop.within(&ENTRY))?;
                }
                out.push(b'}');
            }
            Op::Struct(parts) => {
                out.push(b'{');
                let mut is_first = true;
                for part in parts {
                    // Left out, as in `to_json`.
                    if part.writer.is_null(row)? {
                        continue;
                    }
                    if !std::mem::take(&mut is_first) {
                        out.push(b',');
                    }
                    out.extend_from_slice(&part.key);
                    part.writer.write(row, out).map_err(|stop| stop.within(&part.name))?;
                }
                out.push(b'}');
            }
        }
        Ok(())
    }
}
