//! Writes the rows of an array, as the plan says.

use std::collections::HashMap;
use std::sync::Arc;

use super::fit::{How, Message, Value};
use crate::arrays::{Outside, Validity};
use crate::protobuf::wire::{Wire, put_tag, put_unsigned};
use crate::values::cells::{Cells, Lists, Texts, Whole};
use crate::values::encode::{Stop, WriteRow, utf8};
use crate::values::fault::{ENTRY, Fault, ITEM};
use crate::varint::put;

const MICROS: i64 = 1_000_000;
const NULL: &str = "the value is null, and Protobuf has no null in an array or a map";

/// A struct column whose rows are messages.
pub struct Writer<'a> {
    validity: Validity<'a>,
    first: usize,
    fields: Vec<Field<'a>>,
    oneofs: &'a [Vec<usize>],
}

struct Field<'a> {
    name: &'a Arc<str>,
    tag: &'a [u8],
    validity: Validity<'a>,
    first: usize,
    op: Op<'a>,
}

enum Op<'a> {
    One { value: Bound<'a>, implicit: bool, required: bool },
    Many(Lists<'a>, Bound<'a>),
    Packed(Lists<'a>, Bound<'a>),
    Map { lists: Lists<'a>, key_tag: &'a [u8], key: Bound<'a>, value_tag: &'a [u8], value: Bound<'a> },
    Nothing,
}

/// Consecutive values of a column.
struct Bound<'a> {
    validity: Validity<'a>,
    first: usize,
    cells: Values<'a>,
}

enum Values<'a> {
    Varint(Whole<'a>),
    Zigzag(Whole<'a>),
    Fixed32(Whole<'a>),
    Fixed64(Whole<'a>),
    Unsigned { values: Whole<'a>, fixed: bool },
    Boolean(&'a [u8]),
    Float(&'a [[u8; 4]]),
    Double(&'a [[u8; 8]]),
    FloatAsDouble(&'a [[u8; 4]]),
    Text(Texts<'a>),
    Bytes(Texts<'a>),
    Enum(Texts<'a>, &'a HashMap<Box<[u8]>, i32>),
    Instant { values: Whole<'a>, seconds: u32, nanos: u32, rounds_down: bool },
    There { bits: &'a [u8], bytes: &'a [u8] },
    Message(Writer<'a>),
    Group(Writer<'a>, &'a [u8]),
}

impl<'a> Writer<'a> {
    /// Makes a writer of a column with the type of `plan`.
    pub fn new(cells: &'a Cells<'a>, plan: &'a Message) -> Result<Self, Stop> {
        let mut fields = vec![];
        for step in &plan.steps {
            let part = cells.children.get(step.part).ok_or(Stop::Outside)?;
            let item = || part.children.first().ok_or(Stop::Outside);
            let op = match &step.how {
                How::One { value, implicit, required } => {
                    Op::One { value: Bound::new(part, value)?, implicit: *implicit, required: *required }
                }
                How::Many(value) => Op::Many(part.lists(), Bound::new(item()?, value)?),
                How::Packed(value) => Op::Packed(part.lists(), Bound::new(item()?, value)?),
                How::Map { key_tag, key, value_tag, value } => {
                    let [keys, values] = item()?.children.as_slice() else { return Err(Stop::Outside) };
                    let (key, value) = (Bound::new(keys, key)?, Bound::new(values, value)?);
                    Op::Map { lists: part.lists(), key_tag, key, value_tag, value }
                }
                How::Nothing => Op::Nothing,
            };
            fields.push(Field { name: &step.name, tag: &step.tag, validity: part.validity, first: part.first, op });
        }
        Ok(Self { validity: cells.validity, first: cells.first, fields, oneofs: &plan.oneofs })
    }
}

impl WriteRow for Writer<'_> {
    #[inline]
    fn is_null(&self, row: usize) -> Result<bool, Outside> {
        Ok(!self.validity.is_set(self.first + row)?)
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
        for members in self.oneofs {
            let mut set = 0;
            for field in members.iter().filter_map(|&i| self.fields.get(i)) {
                set += usize::from(field.has(row)?);
            }
            if set > 1 {
                let names: Vec<&str> =
                    members.iter().filter_map(|&i| self.fields.get(i)).map(|field| &**field.name).collect();
                let reason = format!("several of the fields {} are set, but their oneof takes one", names.join(", "));
                return Err(Fault::new(reason).into());
            }
        }
        for field in &self.fields {
            field.write(row, out).map_err(|stop| stop.within(field.name))?;
        }
        Ok(())
    }
}

impl Field<'_> {
    #[inline(always)]
    fn has(&self, row: usize) -> Result<bool, Outside> {
        Ok(!matches!(self.op, Op::Nothing) && self.validity.is_set(self.first + row)?)
    }

    #[inline]
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
        if !self.has(row)? {
            return match self.op {
                Op::One { required: true, .. } => {
                    Err(Fault::new("the value is null, and the message requires it").into())
                }
                _ => Ok(()),
            };
        }
        let at = self.first + row;
        match &self.op {
            Op::One { value, implicit, .. } => {
                let before = out.len();
                out.extend_from_slice(self.tag);
                let start = out.len();
                value.write(row, out)?;
                // If a field has no presence, only its default value consists of zero bytes.
                if *implicit && out.iter().skip(start).all(|&byte| byte == 0) {
                    out.truncate(before);
                }
            }
            Op::Many(lists, items) => {
                let (start, end) = lists.get(at)?;
                for item in start..end {
                    out.extend_from_slice(self.tag);
                    items.write_item(item, out).map_err(|stop| stop.within(&ITEM))?;
                }
            }
            Op::Packed(lists, items) => {
                let (start, end) = lists.get(at)?;
                if start < end {
                    out.extend_from_slice(self.tag);
                    prefixed(out, |out| {
                        (start..end).try_for_each(|item| items.write_item(item, out).map_err(|stop| stop.within(&ITEM)))
                    })?;
                }
            }
            Op::Map { lists, key_tag, key, value_tag, value } => {
                let (start, end) = lists.get(at)?;
                for entry in start..end {
                    out.extend_from_slice(self.tag);
                    prefixed(out, |out| {
                        out.extend_from_slice(key_tag);
                        key.write_item(entry, out)?;
                        out.extend_from_slice(value_tag);
                        value.write_item(entry, out)
                    })
                    .map_err(|stop| stop.within(&ENTRY))?;
                }
            }
            Op::Nothing => {}
        }
        Ok(())
    }
}

impl<'a> Bound<'a> {
    fn new(cells: &'a Cells<'a>, value: &'a Value) -> Result<Self, Stop> {
        let values = cells.values;
        let bound = match value {
            Value::Varint => Values::Varint(cells.whole()),
            Value::Zigzag => Values::Zigzag(cells.whole()),
            Value::Fixed32 => Values::Fixed32(cells.whole()),
            Value::Fixed64 => Values::Fixed64(cells.whole()),
            &Value::Unsigned { fixed } => Values::Unsigned { values: cells.whole(), fixed },
            Value::Boolean => Values::Boolean(values),
            Value::Float => Values::Float(values.as_chunks().0),
            Value::Double => Values::Double(values.as_chunks().0),
            Value::FloatAsDouble => Values::FloatAsDouble(values.as_chunks().0),
            Value::Text => Values::Text(cells.texts()),
            Value::Bytes => Values::Bytes(cells.texts()),
            Value::Enum(symbols) => Values::Enum(cells.texts(), symbols),
            &Value::Instant { seconds, nanos, rounds_down } => {
                Values::Instant { values: cells.whole(), seconds, nanos, rounds_down }
            }
            Value::There(bytes) => Values::There { bits: values, bytes },
            Value::Message(plan) => Values::Message(Writer::new(cells, plan)?),
            Value::Group(plan, end) => Values::Group(Writer::new(cells, plan)?, end),
        };
        Ok(Self { validity: cells.validity, first: cells.first, cells: bound })
    }

    fn write_item(&self, item: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
        if !self.validity.is_set(self.first + item)? {
            return Err(Fault::new(NULL).into());
        }
        self.write(item, out)
    }

    /// Appends a value that is not null, without its tag.
    #[inline]
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
        let at = self.first + row;
        match &self.cells {
            Values::Varint(values) => put_unsigned(out, values.get(at)? as u64),
            Values::Zigzag(values) => put(out, values.get(at)?),
            Values::Fixed32(values) => out.extend_from_slice(&(values.get(at)? as i32).to_le_bytes()),
            Values::Fixed64(values) => out.extend_from_slice(&values.get(at)?.to_le_bytes()),
            Values::Unsigned { values, fixed } => {
                let value = match (values, values.get(at)?) {
                    (Whole::Long(_), value) => u32::try_from(value).map_err(|_| {
                        Fault::new("the number is negative or has more than 32 bits, and the field is unsigned")
                    })?,
                    // The bits stay the same, as in Java, which has no unsigned numbers.
                    (_, value) => value as u32,
                };
                if *fixed {
                    out.extend_from_slice(&value.to_le_bytes());
                } else {
                    put_unsigned(out, value.into());
                }
            }
            Values::Boolean(bits) => out.push(bits.get(at / 8).ok_or(Outside)? >> (at % 8) & 1),
            Values::Float(values) => out.extend_from_slice(values.get(at).ok_or(Outside)?),
            Values::Double(values) => out.extend_from_slice(values.get(at).ok_or(Outside)?),
            Values::FloatAsDouble(values) => {
                let value = f32::from_le_bytes(*values.get(at).ok_or(Outside)?);
                out.extend_from_slice(&f64::from(value).to_le_bytes());
            }
            Values::Text(values) => with_length(utf8(values.get(at)?)?, out),
            Values::Bytes(values) => with_length(values.get(at)?, out),
            Values::Enum(values, symbols) => match symbols.get(values.get(at)?) {
                Some(&number) => put_unsigned(out, i64::from(number) as u64),
                None => return Err(Fault::new("the string is none of the symbols of the schema's enum").into()),
            },
            &Values::Instant { values, seconds, nanos, rounds_down } => {
                let micros = values.get(at)?;
                let (whole, rest) = if rounds_down {
                    (micros.div_euclid(MICROS), micros.rem_euclid(MICROS))
                } else {
                    (micros / MICROS, micros % MICROS)
                };
                prefixed(out, |out| {
                    for (number, value) in [(seconds, whole), (nanos, rest * 1000)] {
                        if value != 0 {
                            put_tag(out, number, Wire::Varint);
                            put_unsigned(out, value as u64);
                        }
                    }
                    Ok(())
                })?;
            }
            Values::There { bits, bytes } => {
                if bits.get(at / 8).ok_or(Outside)? >> (at % 8) & 1 == 0 {
                    let reason = "the value is false; a message without fields is present (true) or absent (null)";
                    return Err(Fault::new(reason).into());
                }
                out.extend_from_slice(bytes);
            }
            Values::Message(message) => prefixed(out, |out| message.write(row, out))?,
            Values::Group(message, end) => {
                message.write(row, out)?;
                out.extend_from_slice(end);
            }
        }
        Ok(())
    }
}

#[inline(always)]
fn with_length(bytes: &[u8], out: &mut Vec<u8>) {
    put_unsigned(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends the bytes that `write` appends, with their length before them.
fn prefixed(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<(), Stop>) -> Result<(), Stop> {
    // Most lengths have one byte; bytes after a longer length are moved.
    let at = out.len();
    out.push(0);
    write(out)?;
    let len = out.len() - at - 1;
    match (u8::try_from(len), out.get_mut(at)) {
        (Ok(len @ 0..0x80), Some(place)) => *place = len,
        _ => {
            let mut length = vec![];
            put_unsigned(&mut length, len as u64);
            out.splice(at..=at, length);
        }
    }
    Ok(())
}
