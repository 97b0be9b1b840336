//! Runs a plan: takes a value from the start of the input, and adds a row to a column.

use super::input::{block, choose, length, prefixed};
use super::plan::{Action, Items, Op, Plan, Record};
use super::skip::Skips;
use crate::values::column::{Column, Data, MISMATCH, TOO_MANY_ITEMS, allowance, end};
use crate::values::fault::{ENTRY, Fault, ITEM};
use crate::values::slot::Slot;
use crate::varint::{Parsed, array, take, varint, varlong};

/// Returns what the items of the arrays and maps of a default take in memory.
pub fn charge_of(plan: &Plan, slot: &Slot, mut default: &[u8]) -> usize {
    let mut run = Run::unlimited(plan);
    // A default that cannot be decoded is an error of each record that has it.
    drop(run.decode(&plan.op, &mut Column::new(slot), &mut default));
    usize::MAX - run.allowance
}

/// The decoding of one record.
pub struct Run<'a> {
    skips: &'a Skips,
    allowance: usize,
    /// Whether a text that is not UTF-8 is an error here; else the caller checks the column.
    check_texts: bool,
}

impl<'a> Run<'a> {
    pub fn new(plan: &'a Plan, bytes: usize, check_texts: bool) -> Self {
        Self { skips: &plan.skips, allowance: allowance(bytes), check_texts }
    }

    /// For a default: its size is the schema's, and [`Items::charge`] has it where it is repeated.
    fn unlimited(plan: &'a Plan) -> Self {
        // The text of a schema is UTF-8.
        Self { skips: &plan.skips, allowance: usize::MAX, check_texts: false }
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
            (Op::Int, Data::Millis(values)) => values.push(i64::from(varint(input)?) * 1000),
            (Op::Int, Data::Double(values)) => values.push(varint(input)?.into()),
            (Op::Long, Data::Long(values)) => values.push(varlong(input)?),
            (Op::Long, Data::Millis(values)) => {
                let micros = varlong(input)?.checked_mul(1000);
                values.push(micros.ok_or("the timestamp is too large for microseconds")?);
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
                bytes.push(input, len, self.check_texts)?;
            }
            (Op::Bytes, Data::Decimal { limit, values }) => Data::push_decimal(*limit, values, prefixed(input)?)?,
            (Op::Fixed(size), Data::Bytes(bytes)) => bytes.push(input, *size, self.check_texts)?,
            (Op::Fixed(size), Data::Decimal { limit, values }) => {
                Data::push_decimal(*limit, values, take(input, *size)?)?
            }
            (Op::Enum(symbols), Data::Bytes(bytes)) => {
                let symbol = usize::try_from(varint(input)?).ok().and_then(|i| symbols.get(i));
                let symbol = symbol.ok_or("the enum has no symbol with this number")?;
                let symbol = symbol.as_ref().ok_or("the reader schema does not have the symbol of the enum")?;
                bytes.push(&mut symbol.as_bytes(), symbol.len(), false)?;
            }
            (Op::Record(record), Data::Struct { rows, parts }) => {
                self.record(record, parts, input)?;
                *rows += 1;
            }
            (Op::Member { part, op, skip }, Data::Struct { rows, parts }) => {
                match part.and_then(|i| parts.get_mut(i)) {
                    Some(column) => self.decode(op, column, input)?,
                    None => self.skips.run(skip, input)?,
                }
                let others = parts.iter_mut().enumerate().filter(|(i, _)| Some(*i) != *part);
                others.for_each(|(_, column)| column.push_null());
                *rows += 1;
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
                Action::Skip(skip) => self.skips.run(skip, input),
            };
            if let Err(fault) = done {
                return Err(fault.within(&step.name));
            }
        }
        for default in &record.defaults {
            let column = parts.get_mut(default.part).ok_or(MISMATCH)?;
            let done = Run::unlimited(&default.plan).decode(&default.plan.op, column, &mut &default.bytes[..]);
            done.map_err(|fault| fault.within(&default.name))?;
        }
        Ok(())
    }

    /// Takes what `count` items may need from the record's allowance.
    fn charge(&mut self, items: &Items, count: usize) -> Parsed<()> {
        let left = items.charge.checked_mul(count).and_then(|charge| self.allowance.checked_sub(charge));
        self.allowance = left.ok_or(TOO_MANY_ITEMS)?;
        Ok(())
    }

    fn array(&mut self, items: &Items, column: &mut Column, input: &mut &[u8]) -> Result<(), Fault> {
        loop {
            let (count, _) = block(input)?;
            if count == 0 {
                return Ok(());
            }
            self.charge(items, count)?;
            for _ in 0..count {
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
            self.charge(items, count)?;
            for _ in 0..count {
                let len = length(input)?;
                keys.push(input, len, self.check_texts)?;
                self.decode(&items.op, values, input).map_err(|fault| fault.within(&ENTRY))?;
            }
        }
    }
}
