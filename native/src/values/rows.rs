//! The rows of a column of values, each decoded by its own writer schema, or null for a bad value.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};

use super::budget::Budget;
use super::column::Column;
use super::fault::Fault;
use super::framing::Framing;
use super::slot::Slot;
use crate::arrays::Outside;

/// The values to decode: a binary column.
pub trait Values {
    fn rows(&self) -> usize;

    /// Returns a value; None if it is null.
    fn get(&self, row: usize) -> Result<Option<&[u8]>, Outside>;
}

/// The limits of decoding.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The bytes that a record may take; at most [`super::budget::MOST`].
    pub record: usize,
    /// The bytes after which a batch ends; at most [`super::budget::MOST`].
    pub batch: usize,
}

/// The rows of a column of values. If the batch is full before the last value, only the first values have rows.
pub struct Decoded {
    pub data: ArrayData,
    pub bad: Vec<Bad>,
    /// The messages of bad records, without repetitions.
    pub messages: Vec<Arc<str>>,
}

/// The rows, before they become an Arrow array.
pub struct Rows {
    column: Column,
    bad: Vec<Bad>,
    messages: Vec<Arc<str>>,
}

/// A record that could not be decoded; its row is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad {
    pub row: usize,
    /// The id of the writer schema; None if the value has no such id.
    pub id: Option<u64>,
    /// The position of the message in [`Decoded::messages`].
    pub message: usize,
}

#[derive(Debug)]
pub enum Failure {
    /// The offsets of the values point outside their buffers.
    Outside,
    /// A bug of this crate.
    Arrow(ArrowError),
}

/// The plans of the most recently used writer schemas, sorted by the schemas' ids.
#[derive(Debug)]
pub struct Writers<T> {
    known: Vec<Writer<T>>,
    /// Counts the calls of [`Self::missing`].
    now: u64,
}

#[derive(Debug)]
struct Writer<T> {
    id: u64,
    last_used: u64,
    is: T,
}

/// The number of writer schemas that are kept. A plan of 300 fields has 120 kB.
const MAX_WRITERS: usize = 500;

impl<T> Default for Writers<T> {
    fn default() -> Self {
        Self { known: vec![], now: 0 }
    }
}

impl<T> Writers<T> {
    /// Keeps the plan of a writer schema; if there are too many plans, replaces the least recently used plan.
    pub fn put(&mut self, id: u64, is: T) {
        if self.find(id).is_none() && self.known.len() >= MAX_WRITERS {
            let oldest = self.known.iter().map(|writer| writer.last_used).min();
            let at = self.known.iter().position(|writer| Some(writer.last_used) == oldest);
            self.known.remove(at.unwrap_or(0));
        }
        let writer = Writer { id, last_used: self.now, is };
        match self.known.binary_search_by_key(&id, |writer| writer.id) {
            Ok(at) => drop(self.known.get_mut(at).map(|place| *place = writer)),
            Err(at) => self.known.insert(at, writer),
        }
    }

    #[inline(always)]
    fn find(&self, id: u64) -> Option<usize> {
        self.known.binary_search_by_key(&id, |writer| writer.id).ok()
    }

    #[inline(always)]
    pub fn get(&self, id: u64) -> Result<&T, Fault> {
        let found = self.find(id).and_then(|at| self.known.get(at));
        found.map(|writer| &writer.is).ok_or_else(|| Fault::new("no writer schema was added for this schema id"))
    }

    /// Returns the schema ids of the values that have no plan yet, and how many of the first values can be decoded
    /// together. The plans of these values can all be kept.
    pub fn missing(&mut self, values: &impl Values, framing: Framing) -> Result<(Vec<u64>, usize), Failure> {
        self.now += 1;
        let (mut missing, mut met, mut last) = (BTreeSet::new(), 0, None);
        for row in 0..values.rows() {
            let Some(value) = values.get(row).map_err(|_| Failure::Outside)? else { continue };
            let Ok((id, _)) = framing.split(value) else { continue };
            if last == Some(id) {
                continue;
            }
            let now = self.now;
            let found = self.find(id).and_then(|at| self.known.get_mut(at));
            let is_new = match &found {
                Some(writer) => writer.last_used != now,
                None => !missing.contains(&id),
            };
            if is_new && met == MAX_WRITERS {
                return Ok((missing.into_iter().collect(), row));
            }
            met += usize::from(is_new);
            last = Some(id);
            match found {
                Some(writer) => writer.last_used = now,
                None => drop(missing.insert(id)),
            }
        }
        Ok((missing.into_iter().collect(), values.rows()))
    }
}

/// Adds a row for each value with `decode`, which gets the value's schema id and datum, and whether to check its texts.
/// If `decode` does not check texts, all texts of the column are checked together.
pub fn rows_of_texts(
    values: &impl Values,
    slot: &Slot,
    framing: Framing,
    limits: Limits,
    decode: impl Fn(u64, &[u8], &mut Column, &mut Budget, bool) -> Result<(), Fault>,
) -> Result<Rows, Failure> {
    // `decode` is called in one place only, because a second call would not be inlined.
    let mut check_texts = false;
    loop {
        let found = rows_of(values, slot, limits, |row, value, column, budget| {
            let (id, datum) = framing.split(value).map_err(|fault| (None, fault))?;
            let datum = &*framing.unpack(value, datum, budget).map_err(|fault| (None, fault))?;
            let mut check = check_texts;
            loop {
                let done = decode(id, datum, column, budget, check);
                if done.is_ok() || check {
                    return done.map_err(|fault| (Some(id), fault));
                }
                // Find the first fault of this record alone.
                column.truncate(row);
                *budget = Budget::new(limits.record);
                check = true;
            }
        })?;
        if check_texts || found.column.has_texts_of_utf8() {
            return Ok(found);
        }
        check_texts = true;
    }
}

impl Rows {
    pub fn finish(self, kind: &DataType) -> Result<Decoded, Failure> {
        let Self { column, bad, messages } = self;
        Ok(Decoded { data: column.finish(kind).map_err(Failure::Arrow)?, bad, messages })
    }
}

/// Adds a row for each value with `decode`, until the batch is full. `decode` gets the value's number and bytes, and a
/// budget; for a bad value it returns the schema id, if any, and the reason. Null and bad values become null rows.
#[inline(always)]
pub fn rows_of(
    values: &impl Values,
    slot: &Slot,
    limits: Limits,
    mut decode: impl FnMut(usize, &[u8], &mut Column, &mut Budget) -> Result<(), (Option<u64>, Fault)>,
) -> Result<Rows, Failure> {
    let mut column = Column::new(slot);
    let (mut bad, mut messages, mut numbers) = (vec![], vec![], HashMap::new());
    let (own, mut taken) = (slot.bits(), 0);
    for row in 0..values.rows() {
        if taken >= 8 * limits.batch as u64 {
            break;
        }
        taken += own;
        let Some(value) = values.get(row).map_err(|_| Failure::Outside)? else {
            column.push_null();
            continue;
        };
        let mut budget = Budget::new(limits.record);
        let done = decode(row, value, &mut column, &mut budget);
        // The columns keep the memory of a truncated record.
        taken += budget.taken();
        if let Err((id, fault)) = done {
            column.truncate(row);
            column.push_null();
            let message = *numbers.entry(fault.to_string()).or_insert_with_key(|message| {
                messages.push(Arc::from(message.as_str()));
                messages.len() - 1
            });
            bad.push(Bad { row, id, message });
        }
    }
    Ok(Rows { column, bad, messages })
}

#[cfg(test)]
impl<const N: usize> Values for [&[u8]; N] {
    fn rows(&self) -> usize {
        N
    }

    fn get(&self, row: usize) -> Result<Option<&[u8]>, Outside> {
        Ok(self.as_slice().get(row).copied())
    }
}
