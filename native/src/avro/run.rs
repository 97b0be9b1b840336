//! Runs a plan: takes a value from the start of the input, and adds a row to a column.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::column::{Bytes, Column, Data, MISMATCH, end};
use super::fault::Fault;
use super::input::{array, block, choose, prefixed};
use super::plan::{Action, Items, Op, Record};
use super::skip::Skips;
use crate::varint::{Parsed, take, varint, varlong};

/// What a record may take in memory beyond a multiple of its own bytes. Arrays of items without bytes, and the defaults
/// of items, would else allocate without bound.
const ALLOWANCE: usize = 1 << 20;
const ALLOWANCE_PER_BYTE: usize = 64;

static ITEM: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("[]"));
static ENTRY: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("{}"));

/// The decoding of one record.
pub struct Run<'a> {
    skips: &'a Skips,
    allowance: usize,
}

impl<'a> Run<'a> {
    pub fn new(skips: &'a Skips, bytes: usize) -> Self {
        Self { skips, allowance: ALLOWANCE + ALLOWANCE_PER_BYTE * bytes }
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
            (Op::Bytes, Data::Bytes(bytes)) => bytes.push(prefixed(input)?)?,
            (Op::Bytes, Data::Decimal { limit, values }) => Data::push_decimal(*limit, values, prefixed(input)?)?,
            (Op::Fixed(size), Data::Bytes(bytes)) => bytes.push(take(input, *size)?)?,
            (Op::Fixed(size), Data::Decimal { limit, values }) => {
                Data::push_decimal(*limit, values, take(input, *size)?)?
            }
            (Op::Enum(symbols), Data::Bytes(bytes)) => {
                let symbol = usize::try_from(varint(input)?).ok().and_then(|i| symbols.get(i));
                let symbol = symbol.ok_or("the enum has no symbol with this number")?;
                let symbol = symbol.as_ref().ok_or("the reader schema does not have the symbol of the enum")?;
                bytes.push(symbol.as_bytes())?;
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
            (Op::Map(items), Data::Map { ends, keys, values }) => {
                self.map(items, keys, values, input)?;
                end(ends, keys.rows())?;
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
            self.decode(&default.op, column, &mut &default.bytes[..]).map_err(|fault| fault.within(&default.name))?;
        }
        Ok(())
    }

    /// Takes what `count` items may need from the record's allowance.
    fn charge(&mut self, items: &Items, count: usize) -> Parsed<()> {
        let left = items.charge.checked_mul(count).and_then(|charge| self.allowance.checked_sub(charge));
        self.allowance = left.ok_or("an array or map has too many items for its bytes")?;
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

    fn map(&mut self, items: &Items, keys: &mut Bytes, values: &mut Column, input: &mut &[u8]) -> Result<(), Fault> {
        let (start, first) = (*input, keys.rows());
        loop {
            let (count, _) = block(input)?;
            if count == 0 {
                break;
            }
            self.charge(items, count)?;
            for _ in 0..count {
                keys.push(prefixed(input)?)?;
                self.decode(&items.op, values, input).map_err(|fault| fault.within(&ENTRY))?;
            }
        }
        if is_unique(keys, first) {
            return Ok(());
        }
        keys.truncate(first);
        values.truncate(first);
        self.last_of_each_key(items, keys, values, start)
    }

    /// Adds the last entry of each key only, as Java's map has it.
    #[cold]
    fn last_of_each_key(
        &mut self,
        items: &Items,
        keys: &mut Bytes,
        values: &mut Column,
        mut input: &[u8],
    ) -> Result<(), Fault> {
        let mut entries: HashMap<&[u8], (usize, &[u8])> = HashMap::new();
        let mut position = 0;
        loop {
            let (count, _) = block(&mut input)?;
            if count == 0 {
                break;
            }
            for _ in 0..count {
                let key = prefixed(&mut input)?;
                entries.insert(key, (position, input));
                position += 1;
                self.skips.run(&items.skip, &mut input)?;
            }
        }
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_unstable_by_key(|(_, (position, _))| *position);
        for (key, (_, mut value)) in entries {
            keys.push(key)?;
            self.decode(&items.op, values, &mut value).map_err(|fault| fault.within(&ENTRY))?;
        }
        Ok(())
    }
}

/// Returns whether no key from row `first` on is there twice.
fn is_unique(keys: &Bytes, first: usize) -> bool {
    const FEW: usize = 8;
    match keys.rows() - first {
        0 | 1 => true,
        2..=FEW => keys.since(first).enumerate().all(|(i, key)| !keys.since(first + i + 1).any(|other| other == key)),
        _ => {
            let mut seen = std::collections::HashSet::new();
            keys.since(first).all(|key| seen.insert(key))
        }
    }
}
