//! Encodes the rows of an array, each as a message of one type.

use arrow_data::ArrayData;
use arrow_schema::DataType;
use protox::prost_reflect::MessageDescriptor;

use super::fit::fit;
use super::run::Writer;
use crate::protobuf::descriptors::{Descriptors, Source};
use crate::values::cells::Cells;
use crate::values::encode::{Encode, Failure, encode_rows, head};
use crate::values::fault::Fault;
use crate::varint::put;

/// Encodes messages of a schema.
pub struct Encoder {
    message: MessageDescriptor,
    /// The bytes before each message.
    head: Vec<u8>,
}

impl Encoder {
    /// Makes an encoder for the message with this full name, or the schema's first message. `id`: the schema's id in a
    /// registry, for Confluent's framing; None: no framing.
    pub fn new(source: Source<'_>, message: Option<&str>, id: Option<u32>) -> Result<Self, Fault> {
        let descriptors = Descriptors::new(source)?;
        let message = descriptors.message(message)?;
        let mut head = head(id);
        if id.is_some() {
            let indexes = descriptors.indexes_of(&message)?;
            // The usual message, the first, is a single 0.
            if indexes == [0] {
                head.push(0);
            } else {
                put(&mut head, indexes.len() as i64);
                indexes.iter().for_each(|&index| put(&mut head, index));
            }
        }
        Ok(Self { message, head })
    }
}

impl Encode for Encoder {
    fn check(&self, kind: &DataType) -> Result<(), Fault> {
        fit(kind, &self.message).map(|_| ())
    }

    fn encode(&self, cells: &Cells<'_>, rows: usize) -> Result<ArrayData, Failure> {
        let plan = fit(cells.kind, &self.message).map_err(Failure::Type)?;
        encode_rows(&self.head, rows, &Writer::new(cells, &plan)?)
    }
}
