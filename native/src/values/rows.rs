//! The rows of a column of values, each decoded by its own writer schema; those of bad values are null.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};

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

/// The rows of a column of values.
pub struct Decoded {
    pub data: ArrayData,
    pub bad: Vec<Bad>,
    /// The messages of bad records, each once.
    pub messages: Vec<Arc<str>>,
}

/// The rows, before they are an Arrow array.
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

/// What is known of each writer schema, sorted by its id.
#[derive(Debug)]
pub struct Writers<T>(Vec<(u64, T)>);

impl<T> Default for Writers<T> {
    fn default() -> Self {
        Self(vec![])
    }
}

impl<T> Writers<T> {
    pub fn put(&mut self, id: u64, known: T) {
        match self.0.binary_search_by_key(&id, |(known, _)| *known) {
            Ok(at) => {
                if let Some(place) = self.0.get_mut(at) {
                    *place = (id, known);
                }
            }
            Err(at) => self.0.insert(at, (id, known)),
        }
    }

    #[inline(always)]
    pub fn get(&self, id: u64) -> Result<&T, Fault> {
        let found = self.0.binary_search_by_key(&id, |(known, _)| *known).ok().and_then(|at| self.0.get(at));
        found.map(|(_, known)| known).ok_or_else(|| Fault::new("no writer schema was added for this schema id"))
    }

    /// Returns the ids of the values that are not here, each once.
    pub fn missing(&self, values: &impl Values, framing: Framing) -> Result<Vec<u64>, Failure> {
        let (mut missing, mut known) = (BTreeSet::new(), None);
        for row in 0..values.rows() {
            let Some(value) = values.get(row).map_err(|_| Failure::Outside)? else { continue };
            let Ok((id, _)) = framing.split(value) else { continue };
            if known == Some(id) {
                continue;
            }
            known = Some(id);
            if self.get(id).is_err() {
                missing.insert(id);
            }
        }
        Ok(missing.into_iter().collect())
    }
}

/// Adds a row for each value with `decode`, which gets the id of its schema, its datum, and whether texts are checked there;
/// else all texts of the column are checked together.
pub fn rows_of_texts(
    values: &impl Values,
    slot: &Slot,
    framing: Framing,
    decode: impl Fn(u64, &[u8], &mut Column, bool) -> Result<(), Fault>,
) -> Result<Rows, Failure> {
    let rows = |check_texts| {
        rows_of(values, slot, |row, value, column| {
            let (id, datum) = framing.split(value).map_err(|fault| (None, fault))?;
            let datum = &*framing.unpack(value, datum).map_err(|fault| (None, fault))?;
            let mut done = decode(id, datum, column, check_texts);
            if done.is_err() && !check_texts {
                // Find the first fault of the record, whatever the other records are.
                column.truncate(row);
                done = decode(id, datum, column, true);
            }
            done.map_err(|fault| (Some(id), fault))
        })
    };
    let found = rows(false)?;
    if found.column.has_texts_of_utf8() { Ok(found) } else { rows(true) }
}

impl Rows {
    pub fn finish(self, kind: &DataType) -> Result<Decoded, Failure> {
        let Self { column, bad, messages } = self;
        Ok(Decoded { data: column.finish(kind).map_err(Failure::Arrow)?, bad, messages })
    }
}

/// Adds a row for each value with `decode`, which gets its number and bytes. A null value becomes a null row, and one that
/// cannot be decoded another: `decode` returns its id, if it has one, and the reason.
#[inline(always)]
pub fn rows_of(
    values: &impl Values,
    slot: &Slot,
    mut decode: impl FnMut(usize, &[u8], &mut Column) -> Result<(), (Option<u64>, Fault)>,
) -> Result<Rows, Failure> {
    let mut column = Column::new(slot);
    let (mut bad, mut messages, mut numbers) = (vec![], vec![], HashMap::new());
    for row in 0..values.rows() {
        let Some(value) = values.get(row).map_err(|_| Failure::Outside)? else {
            column.push_null();
            continue;
        };
        if let Err((id, fault)) = decode(row, value, &mut column) {
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
