//! Runs a plan: takes the fields of a message, in any order, and adds a row to each of its columns.
//!
//! As Protobuf defines, a field that comes again replaces the earlier value, but a message that comes again is merged
//! with the earlier message. Columns grow only at their ends, so the lists of a message end when the whole message is
//! read. For a merge, the row of the earlier message is opened again.

use super::plan::{Absent, Constant, Field, How, Message, Value};
use super::text;
use super::wire::{Wire, length, prefixed, skip, tag, varint};
use protox::prost_reflect::MessageDescriptor;

use crate::values::budget::Budget;
use crate::values::column::{Bytes, Column, Data, MISMATCH, end};
use crate::values::fault::{Fault, ITEM};
use crate::varint::array;

/// The decoding of one record.
pub struct Run<'a> {
    budget: &'a mut Budget,
    /// Whether each text is checked to be UTF-8; else the caller checks the whole column.
    check_texts: bool,
}

impl<'a> Run<'a> {
    pub fn new(budget: &'a mut Budget, check_texts: bool) -> Self {
        Self { budget, check_texts }
    }

    /// Adds one row to `column`. After an error, the parts of the column may have different numbers of rows.
    pub fn decode(&mut self, plan: &Message, column: &mut Column, mut input: &[u8]) -> Result<(), Fault> {
        let Data::Struct(columns) = column.row() else { return Err(MISMATCH.into()) };
        let (rows, parts) = columns.open();
        self.message(plan, rows, parts, &mut input, None)?;
        if plan.has_json {
            self.convert(plan, parts)?;
        }
        columns.close();
        Ok(())
    }

    /// Takes a message up to the end of the input or of the group `group`. `rows`: the columns' earlier rows.
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

    /// Takes the value of a field; returns false for another wire type, or a field that is not requested.
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
                    for &(other, bits) in columns.iter().filter(|(other, _)| Some(*other) != field.part) {
                        if let Some(column) = parts.get_mut(other).filter(|column| column.rows() > rows) {
                            self.budget.take(bits)?;
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
                let (entries, mut bytes) = (entries.as_mut_slice(), prefixed(input)?);
                if has_unknown_symbol(entry, bytes)? {
                    return Ok(true);
                }
                self.budget.take(field.bits)?;
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
        self.budget.take(field.bits)?;
        self.value(field.number, value, column, input).map_err(|fault| fault.within(&ITEM))
    }

    /// Takes a value of a field that already had a value in this message.
    #[cold]
    fn again(
        &mut self,
        field: &Field,
        value: &Value,
        rows: usize,
        column: &mut Column,
        input: &mut &[u8],
    ) -> Result<(), Fault> {
        self.budget.take(field.bits)?;
        if column.is_null(rows) {
            column.truncate(rows);
            return self.value(field.number, value, column, input);
        }
        match (value, column.data()) {
            (Value::Message(plan) | Value::Group(plan), Data::Struct(columns)) => {
                let (rows, parts) = columns.reopen();
                for (part, absent) in parts.iter_mut().zip(&plan.absent) {
                    if matches!(absent, Absent::List | Absent::Map) {
                        part.reopen();
                    }
                }
                self.inner(field.number, value, plan, rows, parts, input)?;
                columns.close();
            }
            (Value::Json(_), Data::Bytes(bytes)) => {
                let piece = prefixed(input)?;
                self.budget.take_text(piece.len())?;
                bytes.extend_last(piece)?;
            }
            (Value::Instant(numbers), Data::Long(values)) => {
                let before = values.pop().unwrap_or(0);
                values.push(numbers.micros(before, prefixed(input)?)?);
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
                self.budget.take_text(len)?;
                bytes.push(input, len, self.check_texts)?;
            }
            (Value::Enum(symbols), Data::Bytes(bytes)) => {
                let number = varint(input)? as i32;
                match symbols.get(number) {
                    Some(name) => self.text(bytes, name.as_bytes())?,
                    None => self.text(bytes, symbols.unknown(number).as_bytes())?,
                }
            }
            (Value::Json(_), Data::Bytes(bytes)) => self.text(bytes, prefixed(input)?)?,
            (Value::Instant(numbers), Data::Long(values)) => values.push(numbers.micros(0, prefixed(input)?)?),
            (Value::Message(plan) | Value::Group(plan), Data::Struct(columns)) => {
                let (rows, parts) = columns.open();
                self.inner(number, value, plan, rows, parts, input)?;
                columns.close();
            }
            // A message without columns.
            (Value::Message(plan) | Value::Group(plan), Data::Boolean(values)) => {
                self.inner(number, value, plan, 0, &mut [], input)?;
                values.append(true);
            }
            _ => return Err(MISMATCH.into()),
        }
        Ok(())
    }

    /// Converts to JSON those messages of the record that become texts.
    fn convert(&mut self, plan: &Message, parts: &mut [Column]) -> Result<(), Fault> {
        for field in plan.fields.iter() {
            let Some(column) = field.part.and_then(|part| parts.get_mut(part)) else { continue };
            let done = match (&field.how, column.data()) {
                (How::One(Value::Json(kind)), _) => self.convert_column(kind, column),
                (How::Many(Value::Json(kind)), Data::List { item, .. }) => self.convert_column(kind, item),
                (How::One(Value::Message(plan) | Value::Group(plan)), Data::Struct(columns)) if plan.has_json => {
                    self.convert(plan, columns.parts())
                }
                (How::Many(Value::Message(plan) | Value::Group(plan)), Data::List { item, .. }) if plan.has_json => {
                    match item.data() {
                        Data::Struct(columns) => self.convert(plan, columns.parts()),
                        _ => Err(MISMATCH.into()),
                    }
                }
                (How::Map(entry), Data::Map { entries, .. }) if entry.has_json => {
                    self.convert(entry, entries.as_mut_slice())
                }
                _ => Ok(()),
            };
            done.map_err(|fault| fault.within(&field.name))?;
        }
        Ok(())
    }

    fn convert_column(&mut self, kind: &MessageDescriptor, column: &mut Column) -> Result<(), Fault> {
        let budget = &mut *self.budget;
        column.convert(|bytes, out| {
            let mut json = vec![];
            text::write(kind, bytes, &mut json, budget)?;
            out.extend_from_slice(&json);
            budget.take_text(json.len())
        })
    }

    /// Adds a row to each column that lacks a row, and ends lists and maps.
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
                Absent::Value(constant) => self.constant(constant, column)?,
                Absent::Required(name) => return Err(Fault::new("the required field is missing").within(name)),
                Absent::Empty(field) => match plan.fields.get(*field).map(|field| &field.how) {
                    Some(How::One(value)) => self.value(0, value, column, &mut &[0u8][..])?,
                    _ => return Err(MISMATCH.into()),
                },
            }
        }
        Ok(())
    }

    fn constant(&mut self, constant: &Constant, column: &mut Column) -> Result<(), Fault> {
        match (constant, column.row()) {
            (Constant::Int(value), Data::Int(values)) => values.push(*value),
            (Constant::Long(value), Data::Long(values)) => values.push(*value),
            (Constant::Float(value), Data::Float(values)) => values.push(*value),
            (Constant::Double(value), Data::Double(values)) => values.push(*value),
            (Constant::Bool(value), Data::Boolean(values)) => values.append(*value),
            (Constant::Bytes(value), Data::Bytes(bytes)) => self.text(bytes, value)?,
            _ => return Err(MISMATCH.into()),
        }
        Ok(())
    }

    /// Appends a text that comes from the schema.
    fn text(&mut self, bytes: &mut Bytes, text: &[u8]) -> Result<(), Fault> {
        self.budget.take_text(text.len())?;
        Ok(bytes.push(&mut &*text, text.len(), false)?)
    }
}

/// Returns whether an entry of a map counts as absent, because its value is of a closed enum and has no symbol.
fn has_unknown_symbol(entry: &Message, mut bytes: &[u8]) -> Result<bool, Fault> {
    let symbols = entry.fields.iter().find_map(|field| match &field.how {
        How::One(Value::Enum(symbols)) if symbols.closed => Some(symbols),
        _ => None,
    });
    let (Some(symbols), mut unknown) = (symbols, false) else { return Ok(false) };
    while !bytes.is_empty() {
        match tag(&mut bytes)? {
            (2, Wire::Varint) => unknown = symbols.get(varint(&mut bytes)? as i32).is_none(),
            (number, wire) => skip(number, wire, &mut bytes)?,
        }
    }
    Ok(unknown)
}
