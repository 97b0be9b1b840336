//! Runs a plan: takes the fields of a message, in any order, and adds a row to each of its columns.
//!
//! A field that comes again replaces the one before, and a message that comes again is merged with it, as Protobuf says. A
//! column grows at its end only. So while a message is read, its repeated fields have no end yet, and to merge into the
//! message before, its row is opened again.

use super::plan::{Absent, Constant, Field, How, Message, Value};
use super::wire::{Wire, length, prefixed, skip, tag, varint};
use crate::values::column::{Column, Data, MISMATCH, TOO_MANY_ITEMS, allowance, end};
use crate::values::fault::{Fault, ITEM};
use crate::varint::array;

const TOO_LARGE: &str = "the seconds are too many for microseconds";

/// The decoding of one record.
pub struct Run {
    allowance: usize,
    /// Whether a text that is not UTF-8 is an error here; else the caller checks the column.
    check_texts: bool,
}

impl Run {
    pub fn new(bytes: usize, check_texts: bool) -> Self {
        Self { allowance: allowance(bytes), check_texts }
    }

    /// Adds one row to `column`. After an error, the parts of the column may have different numbers of rows.
    pub fn decode(&mut self, plan: &Message, column: &mut Column, mut input: &[u8]) -> Result<(), Fault> {
        let Data::Struct { rows, parts } = column.row() else { return Err(MISMATCH.into()) };
        self.message(plan, *rows, parts, &mut input, None)?;
        *rows += 1;
        Ok(())
    }

    /// Takes a message to the end of the input, or of the group with this number. `rows`: how many rows the columns have
    /// without it.
    fn message(
        &mut self,
        plan: &Message,
        rows: usize,
        parts: &mut [Column],
        input: &mut &[u8],
        group: Option<u32>,
    ) -> Result<(), Fault> {
        let mut next = 0;
        while !input.is_empty() || group.is_some() {
            let (number, wire) = tag(input)?;
            if wire == Wire::GroupEnd && group == Some(number) {
                return self.finish(plan, rows, parts);
            }
            let taken = match plan.find(number, &mut next) {
                Some(field) => {
                    let taken = self.field(plan, field, wire, rows, parts, input);
                    taken.map_err(|fault| fault.within(&field.name))?
                }
                None => false,
            };
            if !taken {
                skip(number, wire, input)?;
            }
        }
        self.finish(plan, rows, parts)
    }

    /// Takes the value of a field; returns false if it is not one of the field's type, or nobody asks for it.
    #[inline(always)]
    fn field(
        &mut self,
        plan: &Message,
        field: &Field,
        wire: Wire,
        rows: usize,
        parts: &mut [Column],
        input: &mut &[u8],
    ) -> Result<bool, Fault> {
        match &field.how {
            How::One(value) => {
                if wire != value.wire() {
                    return Ok(false);
                }
                if let (Value::Enum(symbols), true) = (value, wire == Wire::Varint)
                    && symbols.closed
                    && symbols.get(varint(&mut &**input)? as i32).is_none()
                {
                    return Ok(false);
                }
                if let Some(columns) = field.oneof.and_then(|oneof| plan.oneofs.get(oneof)) {
                    for &(other, charge) in columns.iter().filter(|(other, _)| Some(*other) != field.part) {
                        if let Some(column) = parts.get_mut(other).filter(|column| column.rows() > rows) {
                            self.charge(charge)?;
                            column.truncate(rows);
                        }
                    }
                }
                let Some(part) = field.part else { return Ok(false) };
                let column = parts.get_mut(part).ok_or(MISMATCH)?;
                if column.rows() > rows {
                    self.again(field, value, rows, column, input)?;
                } else {
                    self.value(field.number, value, column, input)?;
                }
            }
            How::Many(value) => {
                let Some(Data::List { item, .. }) = field.part.and_then(|part| parts.get_mut(part)).map(Column::data)
                else {
                    return Err(MISMATCH.into());
                };
                if wire == value.wire() {
                    self.item(field, value, item, input)?;
                } else if wire == Wire::Prefixed && value.is_packable() {
                    let mut packed = prefixed(input)?;
                    while !packed.is_empty() {
                        self.item(field, value, item, &mut packed)?;
                    }
                } else {
                    return Ok(false);
                }
            }
            How::Map(entry) => {
                if wire != Wire::Prefixed {
                    return Ok(false);
                }
                let Some(Data::Map { entries, .. }) = field.part.and_then(|part| parts.get_mut(part)).map(Column::data)
                else {
                    return Err(MISMATCH.into());
                };
                self.charge(field.charge)?;
                let (entries, mut bytes) = (entries.as_mut_slice(), prefixed(input)?);
                let rows = entries.iter().map(Column::rows).min().unwrap_or(0);
                self.message(entry, rows, entries, &mut bytes, None)?;
            }
        }
        Ok(true)
    }

    fn item(&mut self, field: &Field, value: &Value, column: &mut Column, input: &mut &[u8]) -> Result<(), Fault> {
        if let Value::Enum(symbols) = value
            && symbols.closed
            && symbols.get(varint(&mut &**input)? as i32).is_none()
        {
            varint(input)?;
            return Ok(());
        }
        self.charge(field.charge)?;
        self.value(field.number, value, column, input).map_err(|fault| fault.within(&ITEM))
    }

    /// Takes a value of which the message had one before.
    #[cold]
    fn again(
        &mut self,
        field: &Field,
        value: &Value,
        rows: usize,
        column: &mut Column,
        input: &mut &[u8],
    ) -> Result<(), Fault> {
        self.charge(field.charge)?;
        if column.is_null(rows) {
            column.truncate(rows);
            return self.value(field.number, value, column, input);
        }
        match (value, column.data()) {
            (Value::Message(plan) | Value::Group(plan), Data::Struct { rows, parts }) => {
                *rows -= 1;
                for (part, absent) in parts.iter_mut().zip(&plan.absent) {
                    if matches!(absent, Absent::List | Absent::Map) {
                        part.reopen();
                    }
                }
                self.inner(field.number, value, plan, *rows, parts, input)?;
                *rows += 1;
            }
            (&Value::Instant { seconds, nanos }, Data::Long(values)) => {
                let before = values.pop().unwrap_or(0);
                values.push(instant(before, seconds, nanos, prefixed(input)?)?);
            }
            _ => {
                column.truncate(rows);
                self.value(field.number, value, column, input)?;
            }
        }
        Ok(())
    }

    fn inner(
        &mut self,
        number: u32,
        value: &Value,
        plan: &Message,
        rows: usize,
        parts: &mut [Column],
        input: &mut &[u8],
    ) -> Result<(), Fault> {
        match value {
            Value::Group(_) => self.message(plan, rows, parts, input, Some(number)),
            _ => self.message(plan, rows, parts, &mut prefixed(input)?, None),
        }
    }

    #[inline(always)]
    fn value(&mut self, number: u32, value: &Value, column: &mut Column, input: &mut &[u8]) -> Result<(), Fault> {
        match (value, column.row()) {
            (Value::Int32, Data::Int(values)) => values.push(varint(input)? as i32),
            (Value::Sint32, Data::Int(values)) => {
                let raw = varint(input)? as u32;
                values.push((raw >> 1) as i32 ^ -((raw & 1) as i32));
            }
            (Value::Uint32, Data::Long(values)) => values.push((varint(input)? as u32).into()),
            (Value::Int64, Data::Long(values)) => values.push(varint(input)? as i64),
            (Value::Sint64, Data::Long(values)) => {
                let raw = varint(input)?;
                values.push((raw >> 1) as i64 ^ -((raw & 1) as i64));
            }
            (Value::Bool, Data::Boolean(values)) => values.append(varint(input)? != 0),
            (Value::Fixed32, Data::Long(values)) => values.push(u32::from_le_bytes(array(input)?).into()),
            (Value::Sfixed32, Data::Int(values)) => values.push(i32::from_le_bytes(array(input)?)),
            (Value::Fixed64, Data::Long(values)) => values.push(i64::from_le_bytes(array(input)?)),
            (Value::Float, Data::Float(values)) => values.push(f32::from_le_bytes(array(input)?)),
            (Value::Double, Data::Double(values)) => values.push(f64::from_le_bytes(array(input)?)),
            (Value::Text, Data::Bytes(bytes)) => {
                let len = length(input)?;
                bytes.push(input, len, self.check_texts)?;
            }
            (Value::Enum(symbols), Data::Bytes(bytes)) => {
                let number = varint(input)? as i32;
                match symbols.get(number) {
                    Some(name) => bytes.push(&mut name.as_bytes(), name.len(), false)?,
                    None => {
                        let name = symbols.unknown(number);
                        bytes.push(&mut name.as_bytes(), name.len(), false)?;
                    }
                }
            }
            (&Value::Instant { seconds, nanos }, Data::Long(values)) => {
                values.push(instant(0, seconds, nanos, prefixed(input)?)?);
            }
            (Value::Message(plan) | Value::Group(plan), Data::Struct { rows, parts }) => {
                self.inner(number, value, plan, *rows, parts, input)?;
                *rows += 1;
            }
            _ => return Err(MISMATCH.into()),
        }
        Ok(())
    }

    /// Gives a row to each column that has none yet, and an end to lists and maps.
    fn finish(&mut self, plan: &Message, rows: usize, parts: &mut [Column]) -> Result<(), Fault> {
        for (column, absent) in parts.iter_mut().zip(&plan.absent) {
            match absent {
                Absent::List => match column.row() {
                    Data::List { ends, item } => end(ends, item.rows())?,
                    _ => return Err(MISMATCH.into()),
                },
                Absent::Map => match column.row() {
                    Data::Map { ends, entries, replaced } => {
                        let (first, [keys, _]) = (ends.last().map_or(0, |&end| end as usize), entries.as_ref());
                        end(ends, keys.rows())?;
                        keys.replaced_since(first, replaced);
                    }
                    _ => return Err(MISMATCH.into()),
                },
                _ if column.rows() > rows => {}
                Absent::Null => column.push_null(),
                Absent::Value(constant) => push(constant, column)?,
                Absent::Required(name) => return Err(Fault::new("the required field is missing").within(name)),
                Absent::Empty(field) => match plan.fields.get(*field).map(|field| &field.how) {
                    Some(How::One(value)) => self.value(0, value, column, &mut &[0u8][..])?,
                    _ => return Err(MISMATCH.into()),
                },
            }
        }
        Ok(())
    }

    /// Takes what an item may need from the record's allowance.
    #[inline(always)]
    fn charge(&mut self, bytes: usize) -> Result<(), Fault> {
        self.allowance = self.allowance.checked_sub(bytes).ok_or(TOO_MANY_ITEMS)?;
        Ok(())
    }
}

fn push(constant: &Constant, column: &mut Column) -> Result<(), Fault> {
    match (constant, column.row()) {
        (Constant::Int(value), Data::Int(values)) => values.push(*value),
        (Constant::Long(value), Data::Long(values)) => values.push(*value),
        (Constant::Float(value), Data::Float(values)) => values.push(*value),
        (Constant::Double(value), Data::Double(values)) => values.push(*value),
        (Constant::Bool(value), Data::Boolean(values)) => values.append(*value),
        (Constant::Bytes(value), Data::Bytes(bytes)) => bytes.push(&mut &**value, value.len(), false)?,
        _ => return Err(MISMATCH.into()),
    }
    Ok(())
}

/// Returns the microseconds of a `Timestamp` or `Duration`; what it does not say is as in `before`.
fn instant(before: i64, seconds: u32, nanos: u32, mut input: &[u8]) -> Result<i64, Fault> {
    let (mut whole, mut rest) = (before.div_euclid(1_000_000), (before.rem_euclid(1_000_000) * 1000) as i32);
    while !input.is_empty() {
        match tag(&mut input)? {
            (number, Wire::Varint) if number == seconds => whole = varint(&mut input)? as i64,
            (number, Wire::Varint) if number == nanos => rest = varint(&mut input)? as i32,
            (number, wire) => skip(number, wire, &mut input)?,
        }
    }
    let micros = whole.checked_mul(1_000_000).and_then(|micros| micros.checked_add(i64::from(rest) / 1000));
    micros.ok_or_else(|| TOO_LARGE.into())
}
