//! Skips written values that no column shows, up to a limit of nesting.

use std::collections::HashMap;

use super::input;
use super::schema::{Id, Kind, Schema};
use crate::values::column::MISMATCH;
use crate::values::fault::Fault;
use crate::varint::{take, varint, varlong};

/// How the bytes of a value are skipped. Only a value of `Bytes` may have no bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skip {
    Bytes(usize),
    Int,
    Long,
    Prefixed,
    Sequence(Vec<Skip>),
    Array(Box<Skip>),
    Map(Box<Skip>),
    Union(Vec<Skip>),
    /// A record of [`Skips::records`], which may contain itself.
    Record(usize),
}

/// The limit on nested records, arrays and maps in a skipped value or a schema, because each level takes stack memory.
const MAX_NESTING: usize = 400;

fn too_deep() -> Fault {
    Fault::new(format!("records, arrays and maps are nested more than {MAX_NESTING} deep"))
}

/// The skips of a schema's types. Each record type has one skip, so the skips are not larger than the schema.
#[derive(Debug, Default)]
pub struct Skips {
    records: Vec<Skip>,
    known: HashMap<Id, Skip>,
}

impl Skips {
    /// Returns the skip of a type.
    pub fn of_type(&mut self, schema: &Schema, id: Id) -> Result<Skip, Fault> {
        self.of_nested(schema, id, 0)
    }

    fn of_nested(&mut self, schema: &Schema, id: Id, nesting: usize) -> Result<Skip, Fault> {
        if nesting > MAX_NESTING {
            return Err(too_deep());
        }
        Ok(match schema.kind(id) {
            Kind::Null => Skip::Bytes(0),
            Kind::Boolean => Skip::Bytes(1),
            Kind::Float => Skip::Bytes(4),
            Kind::Double => Skip::Bytes(8),
            Kind::Fixed(size) => Skip::Bytes(*size),
            Kind::Int | Kind::Enum { .. } => Skip::Int,
            Kind::Long => Skip::Long,
            Kind::Bytes | Kind::String => Skip::Prefixed,
            &Kind::Array(item) => Skip::Array(Box::new(self.of_nested(schema, item, nesting + 1)?)),
            &Kind::Map(value) => Skip::Map(Box::new(self.of_nested(schema, value, nesting + 1)?)),
            Kind::Union(branches) => {
                let branches = branches.iter().map(|&branch| self.of_nested(schema, branch, nesting + 1));
                Skip::Union(branches.collect::<Result<_, _>>()?)
            }
            Kind::Record(fields) => {
                if let Some(known) = self.known.get(&id) {
                    return Ok(known.clone());
                }
                let index = self.records.len();
                self.records.push(Skip::Bytes(0));
                self.known.insert(id, Skip::Record(index));
                let mut parts = vec![];
                for field in fields {
                    match (self.of_nested(schema, field.kind, nesting + 1)?, parts.last_mut()) {
                        (Skip::Bytes(0), _) => {}
                        (Skip::Bytes(more), Some(Skip::Bytes(size))) => *size = size.saturating_add(more),
                        (part, _) => parts.push(part),
                    }
                }
                let skip = match parts.as_slice() {
                    [] => Skip::Bytes(0),
                    [Skip::Bytes(size)] => Skip::Bytes(*size),
                    _ => Skip::Record(index),
                };
                if let Some(place) = self.records.get_mut(index) {
                    *place = Skip::Sequence(parts);
                }
                self.known.insert(id, skip.clone());
                skip
            }
        })
    }

    /// Removes a value from the start of `input`.
    pub fn run(&self, skip: &Skip, input: &mut &[u8]) -> Result<(), Fault> {
        self.run_nested(skip, input, 0)
    }

    fn run_nested(&self, mut skip: &Skip, input: &mut &[u8], nesting: usize) -> Result<(), Fault> {
        if nesting > MAX_NESTING {
            return Err(too_deep());
        }
        while let Skip::Union(branches) = skip {
            skip = input::choose(branches, input)?;
        }
        match skip {
            Skip::Bytes(size) => drop(take(input, *size)?),
            Skip::Int => drop(varint(input)?),
            Skip::Long => drop(varlong(input)?),
            Skip::Prefixed => drop(input::prefixed(input)?),
            Skip::Sequence(parts) => {
                for part in parts {
                    self.run_nested(part, input, nesting)?;
                }
            }
            Skip::Array(item) => self.blocks(item, false, input, nesting + 1)?,
            Skip::Map(value) => self.blocks(value, true, input, nesting + 1)?,
            Skip::Record(index) => match self.records.get(*index) {
                Some(record) => self.run_nested(record, input, nesting + 1)?,
                None => return Err(MISMATCH.into()),
            },
            Skip::Union(_) => {}
        }
        Ok(())
    }

    fn blocks(&self, item: &Skip, keys: bool, input: &mut &[u8], nesting: usize) -> Result<(), Fault> {
        loop {
            let (count, size) = input::block(input)?;
            if count == 0 {
                return Ok(());
            }
            match (size, item) {
                (Some(size), _) => drop(take(input, size)?),
                (None, Skip::Bytes(size)) if !keys => drop(take(input, size.saturating_mul(count))?),
                (None, item) => {
                    for _ in 0..count {
                        if keys {
                            input::prefixed(input)?;
                        }
                        self.run_nested(item, input, nesting)?;
                    }
                }
            }
        }
    }
}
