//! Decodes a column of values, each by its own writer schema.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};

use super::aliases;
use super::column::Column;
use super::compile::compile;
use super::fault::Fault;
use super::framing::Framing;
use super::plan::Plan;
use super::run::Run;
use super::schema::Schema;
use super::shape::Slot;
use crate::arrays::Outside;

/// The values to decode: a binary column.
pub trait Values {
    fn rows(&self) -> usize;

    /// Returns a value; None if it is null.
    fn get(&self, row: usize) -> Result<Option<&[u8]>, Outside>;
}

/// Decodes values into columns of the reader schema.
pub struct Decoder {
    text: String,
    reader: Schema,
    slot: Slot,
    kind: DataType,
    framing: Framing,
    plans: Writers<Plan>,
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

impl Decoder {
    /// Makes a decoder without writer schemas. `recursion`: see [`Slot::of_schema`].
    pub fn new(reader: &str, fields: Option<&[String]>, framing: Framing, recursion: i64) -> Result<Self, Fault> {
        let schema = Schema::parse(reader)?;
        let mut slot = Slot::of_schema(&schema, recursion)?;
        if let Some(fields) = fields {
            slot.project(&schema, fields)?;
        }
        // The row of a tombstone or a bad record is null.
        slot.nullable = true;
        let kind = slot.data_type();
        Ok(Self { text: reader.to_owned(), reader: schema, slot, kind, framing, plans: Writers::default() })
    }

    pub fn kind(&self) -> &DataType {
        &self.kind
    }

    /// Adds a writer schema; one with the same id is replaced.
    pub fn add(&mut self, id: u64, schema: &str) -> Result<(), Fault> {
        let mut writer = Schema::parse(schema)?;
        // The aliases of a schema do not apply to itself.
        if schema != self.text {
            aliases::apply(&mut writer, &self.reader)?;
        }
        let plan = compile(&writer, &self.reader, &self.slot)?;
        self.plans.put(id, plan);
        Ok(())
    }

    /// Returns the ids of the values that have no writer schema here, each once.
    pub fn missing(&self, values: &impl Values) -> Result<Vec<u64>, Failure> {
        self.plans.missing(values, self.framing)
    }

    /// Decodes all values. A null value, and one that cannot be decoded, becomes a null row.
    pub fn decode(&self, values: &impl Values) -> Result<Decoded, Failure> {
        let rows = rows_of_texts(values, &self.slot, self.framing, |id, datum, column, check_texts| {
            let plan = self.plans.get(id)?;
            Run::new(plan, datum.len(), check_texts).decode(&plan.op, column, &mut &*datum)
        })?;
        rows.finish(&self.kind)
    }
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
        let (mut missing, mut known) = (std::collections::BTreeSet::new(), None);
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
mod tests {
    use super::*;

    impl<const N: usize> Values for [&[u8]; N] {
        fn rows(&self) -> usize {
            N
        }

        fn get(&self, row: usize) -> Result<Option<&[u8]>, Outside> {
            Ok(self.as_slice().get(row).copied())
        }
    }

    const READER: &str = r#"{"type": "record", "name": "R", "fields": [
        {"name": "s", "type": "string"}, {"name": "z", "type": "boolean"}]}"#;

    fn decoder() -> Decoder {
        let mut decoder = Decoder::new(READER, None, Framing::None, 0).unwrap();
        decoder.add(0, READER).unwrap();
        decoder
    }

    fn texts(decoded: &Decoded) -> Vec<Option<&[u8]>> {
        let texts = &decoded.data.child_data()[0];
        let (ends, bytes) = (texts.buffers()[0].typed_data::<i32>(), texts.buffers()[1].as_slice());
        let text = |i: usize| &bytes[ends[i] as usize..ends[i + 1] as usize];
        (0..decoded.data.len()).map(|i| decoded.data.is_valid(i).then(|| text(i))).collect()
    }

    #[test]
    fn halves_of_a_character_in_two_rows_are_bad_though_together_they_are_utf8() {
        let decoded = decoder().decode(&[&b"\x04a\xc3\0"[..], b"\x04\xa9b\0", b"\x04\xc3\xa9\x01"]).unwrap();
        assert_eq!(decoded.bad.iter().map(|bad| bad.row).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(decoded.messages, [Arc::from("field s: the string is not UTF-8")]);
        assert_eq!(texts(&decoded), [None, None, Some("é".as_bytes())]);
    }

    #[test]
    fn a_bad_record_has_the_message_of_its_first_fault_whatever_the_others_are() {
        let (both, good) = (&b"\x02\xff\x07"[..], &b"\x02a\x01"[..]);
        for values in [[both, good], [both, b"\x02\xff\0"]] {
            let decoded = decoder().decode(&values).unwrap();
            assert_eq!(decoded.messages, [Arc::from("field s: the string is not UTF-8")]);
        }
    }

    #[test]
    fn texts_of_any_length_are_copied_whole_wherever_the_value_ends() {
        for len in 0..70 {
            let text = "x".repeat(len);
            let mut value = vec![];
            crate::varint::put(&mut value, len as i64);
            value.extend_from_slice(text.as_bytes());
            value.push(1);
            let decoded = decoder().decode(&[&value[..], &value]).unwrap();
            assert_eq!(texts(&decoded), [Some(text.as_bytes()), Some(text.as_bytes())]);
        }
    }
}
