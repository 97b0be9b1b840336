//! Decodes a column of values, each by its own writer schema, and keeps the plan of each schema id.

use arrow_schema::DataType;

use super::aliases;
use super::compile::compile;
use super::plan::Plan;
use super::run::Run;
use super::schema::Schema;
use crate::values::fault::Fault;
use crate::values::framing::Framing;
use crate::values::rows::{Decoded, Failure, Limits, Values, Writers, rows_of_texts};
use crate::values::slot::Slot;

/// Decodes values into columns of the reader schema.
pub struct Decoder {
    text: String,
    reader: Schema,
    slot: Slot,
    kind: DataType,
    framing: Framing,
    plans: Writers<Plan>,
}

impl Decoder {
    /// Makes a decoder without writer schemas. `wanted`, `recursion`: see [`Slot::of_schema`].
    pub fn new(reader: &str, wanted: Option<&DataType>, framing: Framing, recursion: i64) -> Result<Self, Fault> {
        let schema = Schema::parse(reader)?;
        let mut slot = Slot::of_schema(&schema, wanted, recursion)?;
        // The row of a tombstone or a bad record is null.
        slot.nullable = true;
        let kind = slot.data_type();
        Ok(Self { text: reader.to_owned(), reader: schema, slot, kind, framing, plans: Writers::default() })
    }

    pub fn kind(&self) -> &DataType {
        &self.kind
    }

    /// Adds a writer schema; replaces a schema with the same id.
    pub fn add(&mut self, id: u64, schema: &str) -> Result<(), Fault> {
        let mut writer = Schema::parse(schema)?;
        // The reader schema's aliases do not apply if the writer schema is the same.
        if schema != self.text {
            aliases::apply(&mut writer, &self.reader)?;
        }
        let plan = compile(&writer, &self.reader, &self.slot)?;
        self.plans.put(id, plan);
        Ok(())
    }

    /// See [`Writers::missing`].
    pub fn missing(&mut self, values: &impl Values) -> Result<(Vec<u64>, usize), Failure> {
        self.plans.missing(values, self.framing)
    }

    /// Decodes values until the batch is full. A null value, or a value that cannot be decoded, becomes a null row.
    pub fn decode(&self, values: &impl Values, limits: Limits) -> Result<Decoded, Failure> {
        let rows =
            rows_of_texts(values, &self.slot, self.framing, limits, |id, datum, column, budget, check_texts| {
                let plan = self.plans.get(id)?;
                Run::new(plan, budget, check_texts).decode(&plan.op, column, &mut &*datum)
            })?;
        rows.finish(&self.kind)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::values::budget::MOST;

    const LIMITS: Limits = Limits { record: 1 << 20, batch: MOST };

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
        let decoded = decoder().decode(&[&b"\x04a\xc3\0"[..], b"\x04\xa9b\0", b"\x04\xc3\xa9\x01"], LIMITS).unwrap();
        assert_eq!(decoded.bad.iter().map(|bad| bad.row).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(decoded.messages, [Arc::from("field s: the string is not UTF-8")]);
        assert_eq!(texts(&decoded), [None, None, Some("é".as_bytes())]);
    }

    #[test]
    fn a_bad_record_has_the_message_of_its_first_fault_whatever_the_others_are() {
        let (both, good) = (&b"\x02\xff\x07"[..], &b"\x02a\x01"[..]);
        for values in [[both, good], [both, b"\x02\xff\0"]] {
            let decoded = decoder().decode(&values, LIMITS).unwrap();
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
            let decoded = decoder().decode(&[&value[..], &value], LIMITS).unwrap();
            assert_eq!(texts(&decoded), [Some(text.as_bytes()), Some(text.as_bytes())]);
        }
    }
}
