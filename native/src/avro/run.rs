//! Runs a plan: takes a value from the start of the input, and adds a row to a column.

use super::input::{block, choose, length, prefixed};
use super::plan::{Action, Items, Op, Plan, Record};
use super::text;
use crate::values::budget::Budget;
use crate::values::column::{Bytes, Column, Data, MISMATCH, end};
use crate::values::fault::{ENTRY, Fault, ITEM};
use crate::varint::{array, take, varint, varlong};

const TOO_LARGE: &str = "the time is too large for its unit in the column";

/// The decoding of one record.
pub struct Run<'a> {
    plan: &'a Plan,
    budget: &'a mut Budget,
    /// Whether each text is checked to be UTF-8; else the caller checks the whole column.
    check_texts: bool,
}

impl<'a> Run<'a> {
    pub fn new(plan: &'a Plan, budget: &'a mut Budget, check_texts: bool) -> Self {
        Self { plan, budget, check_texts }
    }

    /// Adds one row to `column`. After an error, the parts of the column may have different numbers of rows.
    pub fn decode(&mut self, op: &Op, column: &mut Column, input: &mut &[u8]) -> Result<(), Fault> {
        match op {
            Op::Null => {
                column.push_null();
                return Ok(());
            }
            Op::Union(branches) => {
                let branch = choose(branches, input)?;
                return self.decode(branch, column, input);
            }
            Op::Error(fault) => return Err(fault.clone()),
            _ => {}
        }
        match (op, column.row()) {
            (Op::Int, Data::Int(values)) => values.push(varint(input)?),
            (Op::Int, Data::Long(values)) => values.push(varint(input)?.into()),
            (Op::Int, Data::Double(values)) => values.push(varint(input)?.into()),
            (Op::Long, Data::Long(values)) => values.push(varlong(input)?),
            (Op::LongTimes(units), Data::Long(values)) => {
                values.push(varlong(input)?.checked_mul(*units).ok_or(TOO_LARGE)?);
            }
            (Op::IntTimes(units), Data::Long(values)) => {
                values.push(i64::from(varint(input)?).checked_mul(*units).ok_or(TOO_LARGE)?);
            }
            (Op::LongParts(units), Data::Long(values)) => {
                let value = varlong(input)?;
                if value % units != 0 {
                    return Err("the time has a part of its unit in the column".into());
                }
                values.push(value / units);
            }
            (Op::Long, Data::Double(values)) => values.push(varlong(input)? as f64),
            (Op::IntAsFloat, Data::Float(values)) => values.push(varint(input)? as f32),
            (Op::IntAsFloat, Data::Double(values)) => values.push((varint(input)? as f32).into()),
            (Op::LongAsFloat, Data::Float(values)) => values.push(varlong(input)? as f32),
            (Op::LongAsFloat, Data::Double(values)) => values.push((varlong(input)? as f32).into()),
            (Op::Float, Data::Float(values)) => values.push(f32::from_le_bytes(array(input)?)),
            (Op::Float, Data::Double(values)) => values.push(f32::from_le_bytes(array(input)?).into()),
            (Op::Double, Data::Double(values)) => values.push(f64::from_le_bytes(array(input)?)),
            (Op::Boolean, Data::Boolean(values)) => match array(input)? {
                [byte @ (0 | 1)] => values.append(byte == 1),
                _ => return Err("the boolean is neither 0 nor 1".into()),
            },
            (Op::Bytes, Data::Bytes(bytes)) => {
                let len = length(input)?;
                self.text(bytes, len, input)?;
            }
            (Op::Fixed(size), Data::Bytes(bytes)) => self.text(bytes, *size, input)?,
            (Op::Decimal { size, shift }, Data::Decimal { limit, values }) => {
                let bytes = match size {
                    Some(size) => take(input, *size)?,
                    None => prefixed(input)?,
                };
                Data::push_decimal(*limit, values, bytes, *shift)?;
            }
            (Op::Enum(symbols), Data::Bytes(bytes)) => {
                let symbol = usize::try_from(varint(input)?).ok().and_then(|i| symbols.get(i));
                let symbol = symbol.ok_or("the enum has no symbol with this number")?;
                let symbol = symbol.as_ref().ok_or("the reader schema does not have the symbol of the enum")?;
                self.budget.take_text(symbol.len())?;
                bytes.push(&mut symbol.as_bytes(), symbol.len(), false)?;
            }
            (Op::Json(id), Data::Bytes(bytes)) => {
                let (schema, mut out) = (self.plan.writer.as_ref().ok_or(MISMATCH)?, vec![]);
                text::write(schema, *id, input, &mut out, self.budget)?;
                self.budget.take_text(out.len())?;
                bytes.push(&mut out.as_slice(), out.len(), false)?;
            }
            (Op::Record(record), Data::Struct(columns)) => {
                self.record(record, columns.open().1, input)?;
                columns.close();
            }
            (Op::Member { part, op, skip }, Data::Struct(columns)) => {
                let (_, parts) = columns.open();
                match part.and_then(|i| parts.get_mut(i)) {
                    Some(column) => self.decode(op, column, input)?,
                    None => self.plan.skips.run(skip, input)?,
                }
                let others = parts.iter_mut().enumerate().filter(|(i, _)| Some(*i) != *part);
                others.for_each(|(_, column)| column.push_null());
                columns.close();
            }
            (Op::Array(items), Data::List { ends, item }) => {
                self.array(items, item, input)?;
                end(ends, item.rows())?;
            }
            (Op::Map(items), Data::Map { ends, entries, replaced }) => {
                let [keys, values] = entries.as_mut();
                let first = keys.rows();
                self.map(items, keys, values, input)?;
                end(ends, keys.rows())?;
                keys.replaced_since(first, replaced);
            }
            _ => return Err(MISMATCH.into()),
        }
        Ok(())
    }

    #[inline(always)]
    fn record(&mut self, record: &Record, parts: &mut [Column], input: &mut &[u8]) -> Result<(), Fault> {
        for step in &record.steps {
            let done = match &step.action {
                Action::Read { part, op } => match parts.get_mut(*part) {
                    Some(column) => self.decode(op, column, input),
                    None => Err(MISMATCH.into()),
                },
                Action::Skip(skip) => self.plan.skips.run(skip, input),
            };
            if let Err(fault) = done {
                return Err(fault.within(&step.name));
            }
        }
        for default in &record.defaults {
            let column = parts.get_mut(default.part).ok_or(MISMATCH)?;
            // The text of a schema is UTF-8.
            let mut run = Run::new(&default.plan, self.budget, false);
            let done = run.decode(&default.plan.op, column, &mut &default.bytes[..]);
            done.map_err(|fault| fault.within(&default.name))?;
        }
        Ok(())
    }

    #[inline(always)]
    fn text(&mut self, bytes: &mut Bytes, len: usize, input: &mut &[u8]) -> Result<(), Fault> {
        self.budget.take_text(len)?;
        Ok(bytes.push(input, len, self.check_texts)?)
    }

    fn array(&mut self, items: &Items, column: &mut Column, input: &mut &[u8]) -> Result<(), Fault> {
        loop {
            let (count, _) = block(input)?;
            if count == 0 {
                return Ok(());
            }
            self.budget.check(items.bits, count)?;
            if matches!(items.op, Op::Null) {
                self.budget.take(items.bits * count as u64)?;
                column.push_nulls(count);
                continue;
            }
            for _ in 0..count {
                self.budget.take(items.bits)?;
                self.decode(&items.op, column, input).map_err(|fault| fault.within(&ITEM))?;
            }
        }
    }

    fn map(&mut self, items: &Items, keys: &mut Column, values: &mut Column, input: &mut &[u8]) -> Result<(), Fault> {
        let Data::Bytes(keys) = keys.row() else { return Err(MISMATCH.into()) };
        loop {
            let (count, _) = block(input)?;
            if count == 0 {
                return Ok(());
            }
            self.budget.check(items.bits, count)?;
            for _ in 0..count {
                self.budget.take(items.bits)?;
                let len = length(input)?;
                self.text(keys, len, input)?;
                self.decode(&items.op, values, input).map_err(|fault| fault.within(&ENTRY))?;
            }
        }
    }
}
