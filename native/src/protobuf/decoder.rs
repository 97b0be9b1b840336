//! Decodes a column of Protobuf values of one message.

use arrow_schema::DataType;

use super::descriptors::{Descriptors, Source, names};
use super::plan::Message;
use super::run::Run;
use crate::values::fault::Fault;
use crate::values::framing::Framing;
use crate::values::rows::{Decoded, Failure, Limits, Values, Writers, rows_of_texts};
use crate::values::slot::{Shape, Slot};
use crate::varint::{put, varlong};

/// Decodes values into columns, one for each field of a message.
pub struct Decoder {
    plan: Message,
    slot: Slot,
    kind: DataType,
    framing: Framing,
    package: String,
    /// The name of the message without its package, because writers may have changed the package.
    name: String,
    writers: Writers<Writer>,
}

/// The messages of a writer schema.
struct Writer {
    /// The indexes of the column's message, as in a record.
    expected: Vec<u8>,
    /// The messages by their index in each level.
    names: Vec<(Vec<i64>, String)>,
}

const NO_INDEXES: &str = "the message indexes after the schema id are not valid";

impl Decoder {
    /// Makes a decoder without writer schemas for the message with this full name, or the schema's first message.
    /// `recursion`: see [`Message::of_type`].
    pub fn new(
        source: Source<'_>,
        message: Option<&str>,
        wanted: Option<&DataType>,
        framing: Framing,
        recursion: i64,
    ) -> Result<Self, Fault> {
        let descriptors = Descriptors::new(source)?;
        let message = descriptors.message(message)?;
        let (parts, plan) = Message::of_type(&message, wanted, recursion)?;
        // The row of a tombstone or a bad record is null.
        let slot = Slot { shape: Shape::Struct(parts), nullable: true };
        let package = message.package_name().to_owned();
        let name = message.full_name();
        let name = name.strip_prefix(&package).map_or(name, |name| name.trim_start_matches('.')).to_owned();
        let kind = slot.data_type();
        Ok(Self { plan, slot, kind, framing, package, name, writers: Writers::default() })
    }

    pub fn kind(&self) -> &DataType {
        &self.kind
    }

    /// Adds a writer schema, the text of a `.proto` file; replaces a schema with the same id. The schema gives the name
    /// of a record's message; fields are found by their numbers.
    pub fn add(&mut self, id: u64, schema: &str) -> Result<(), Fault> {
        let names = names(schema)?;
        let Some((path, _)) = names.iter().find(|(_, name)| *name == self.name) else {
            return Err(Fault::new(format!("it has no message {}", self.name)));
        };
        let mut expected = vec![0];
        if *path != [0] {
            expected.clear();
            put(&mut expected, path.len() as i64);
            path.iter().for_each(|&index| put(&mut expected, index));
        }
        self.writers.put(id, Writer { expected, names });
        Ok(())
    }

    /// See [`Writers::missing`].
    pub fn missing(&mut self, values: &impl Values) -> Result<(Vec<u64>, usize), Failure> {
        match self.framing {
            Framing::None => Ok((vec![], values.rows())),
            framing => self.writers.missing(values, framing),
        }
    }

    /// Decodes values until the batch is full. A null value, or a value that cannot be decoded, becomes a null row.
    pub fn decode(&self, values: &impl Values, limits: Limits) -> Result<Decoded, Failure> {
        let framing = self.framing;
        let rows = rows_of_texts(values, &self.slot, framing, limits, |id, mut datum, column, budget, check_texts| {
            if framing != Framing::None {
                self.check_message(id, &mut datum)?;
            }
            Run::new(budget, check_texts).decode(&self.plan, column, datum)
        })?;
        rows.finish(&self.kind)
    }

    /// Removes the message indexes, and checks that they name the message of the column.
    fn check_message(&self, id: u64, input: &mut &[u8]) -> Result<(), Fault> {
        let writer = self.writers.get(id)?;
        if let Some(rest) = input.strip_prefix(writer.expected.as_slice()) {
            *input = rest;
            return Ok(());
        }
        match writer.message(input)? {
            name if *name == self.name => Ok(()),
            name => Err(Fault::new(format!("the record is a message {name}, but the column has {}", self.name))),
        }
    }

    /// Returns the full name of a value's message, in the package of the column's message.
    pub fn message_of(&self, value: &[u8]) -> Result<String, Fault> {
        let (id, mut datum) = self.framing.split(value)?;
        let name = self.writers.get(id)?.message(&mut datum)?;
        Ok(if self.package.is_empty() { name.clone() } else { format!("{}.{name}", self.package) })
    }
}

impl Writer {
    /// Removes the message indexes of a record, and returns the message's name without the package.
    fn message(&self, input: &mut &[u8]) -> Result<&String, Fault> {
        let path = message_indexes(input)?;
        let found = self.names.iter().find(|(known, _)| *known == path).map(|(_, name)| name);
        found.ok_or_else(|| "the writer schema has no message with the indexes of the record".into())
    }
}

/// Removes the indexes of a message in Confluent's framing: the number of levels (0: the first message), then an index
/// for each level.
fn message_indexes(input: &mut &[u8]) -> Result<Vec<i64>, Fault> {
    const MOST: i64 = 64;
    let count = varlong(input).map_err(|_| NO_INDEXES)?;
    if !(0..=MOST).contains(&count) {
        return Err(NO_INDEXES.into());
    }
    if count == 0 {
        return Ok(vec![0]);
    }
    (0..count).map(|_| varlong(input).map_err(|_| NO_INDEXES.into())).collect()
}
