//! Decodes a column of JSON values.

use arrow_schema::DataType;

use super::plan::{Node, of_type};
use super::reader::Reader;
use crate::values::fault::Fault;
use crate::values::framing::Framing;
use crate::values::rows::{Decoded, Failure, Limits, Values, Writers, rows_of};
use crate::values::slot::Slot;

/// Decodes values into columns of a type. The JSON Schemas that the values name have no effect on the decoding.
pub struct Decoder {
    slot: Slot,
    node: Node,
    kind: DataType,
    framing: Framing,
    /// The schemas that values may name; None: any schema.
    writers: Option<Writers<()>>,
}

impl Decoder {
    /// `checks_ids`: Whether a value is bad unless [`Self::add`] has added its schema.
    pub fn new(kind: &DataType, framing: Framing, checks_ids: bool) -> Result<Self, Fault> {
        let (slot, node) = of_type(kind)?;
        let kind = slot.data_type();
        let checks_ids = checks_ids && matches!(framing, Framing::Confluent | Framing::Apicurio);
        Ok(Self { slot, node, kind, framing, writers: checks_ids.then(Writers::default) })
    }

    /// Adds a schema that values may name.
    pub fn add(&mut self, id: u64) {
        self.writers.iter_mut().for_each(|writers| writers.put(id, ()));
    }

    /// See [`Writers::missing`].
    pub fn missing(&mut self, values: &impl Values) -> Result<(Vec<u64>, usize), Failure> {
        match &mut self.writers {
            Some(writers) => writers.missing(values, self.framing),
            None => Ok((vec![], values.rows())),
        }
    }

    pub fn kind(&self) -> &DataType {
        &self.kind
    }

    /// Decodes values until the batch is full. A null value, or a value that cannot be decoded, becomes a null row.
    pub fn decode(&self, values: &impl Values, limits: Limits) -> Result<Decoded, Failure> {
        let mut scratch = vec![];
        let rows = rows_of(values, &self.slot, limits, |_, value, column, budget| {
            let (id, text) = self.framing.split(value).map_err(|fault| (None, fault))?;
            let id = (self.framing != Framing::None).then_some(id);
            if let (Some(writers), Some(id)) = (&self.writers, id) {
                writers.get(id).map_err(|fault| (Some(id), fault))?;
            }
            let text = &*self.framing.unpack(value, text, budget).map_err(|fault| (id, fault))?;
            Reader::read(text, &mut scratch, &self.node, column, budget).map_err(|fault| (id, fault))
        })?;
        rows.finish(&self.kind)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Field;

    use super::*;
    use crate::values::budget::MOST;

    const LIMITS: Limits = Limits { record: 1 << 20, batch: MOST };

    fn messages(kind: DataType, values: [&[u8]; 3]) -> (Vec<usize>, Vec<String>, usize) {
        let kind = DataType::Struct(vec![Field::new("a", kind, true)].into());
        let decoded = Decoder::new(&kind, Framing::None, false).unwrap().decode(&values, LIMITS).unwrap();
        decoded.data.validate_full().unwrap();
        let rows = decoded.bad.iter().map(|bad| bad.row).collect();
        (rows, decoded.messages.iter().map(ToString::to_string).collect(), decoded.data.len())
    }

    #[test]
    fn a_bad_record_is_cut_off_and_the_others_are_kept() {
        let list = DataType::List(Arc::new(Field::new("element", DataType::Int32, true)));
        let found = messages(list, [br#"{"a": [1, 2]}"#, br#"{"a": [3, "x"]}"#, br#"{"a": [4], "b": [[{}]]}"#]);
        assert_eq!(found, (vec![1], vec!["field a[]: not a number".to_owned()], 3));
    }

    #[test]
    fn a_field_that_comes_again_replaces_the_one_before() {
        let values: [&[u8]; 3] = [br#"{"a": "x", "a": "y"}"#, br#"{"a": "x", "a": null}"#, b"{}"];
        let kind = DataType::Struct(vec![Field::new("a", DataType::Utf8, true)].into());
        let decoded = Decoder::new(&kind, Framing::None, false).unwrap().decode(&values, LIMITS).unwrap();
        let texts = &decoded.data.child_data()[0];
        assert_eq!((texts.null_count(), texts.buffers()[1].as_slice()), (2, &b"y"[..]));
        assert!(decoded.bad.is_empty());
    }

    #[test]
    fn an_id_in_front_is_told_with_what_is_wrong_behind_it() {
        let kind = DataType::Struct(vec![Field::new("a", DataType::Int64, true)].into());
        let values: [&[u8]; 3] = [b"\0\0\0\0\x07{\"a\": 1}", b"\0\0\0\0\x08{\"a\": \"x\"}", b"{\"a\": 1}"];
        let bad = |decoder: &Decoder| -> Vec<_> {
            decoder.decode(&values, LIMITS).unwrap().bad.iter().map(|bad| (bad.row, bad.id)).collect()
        };
        assert_eq!(bad(&Decoder::new(&kind, Framing::Confluent, false).unwrap()), [(1, Some(8)), (2, None)]);
        let mut checks = Decoder::new(&kind, Framing::Confluent, true).unwrap();
        assert_eq!(checks.missing(&values).unwrap(), (vec![7, 8], 3));
        checks.add(8);
        assert_eq!(bad(&checks), [(0, Some(7)), (1, Some(8)), (2, None)]);
    }

    #[test]
    fn depth_and_items_are_bounded() {
        let deep = [b"{\"b\": ".to_vec(), b"[".repeat(100_000)].concat();
        let wide: Vec<_> = (0..500).map(|i| Field::new(format!("f{i}"), DataType::Int64, true)).collect();
        let items = DataType::List(Arc::new(Field::new("element", DataType::Struct(wide.into()), true)));
        let many = [b"{\"a\": [{}".to_vec(), b",{}".repeat(10_000), b"]}".to_vec()].concat();
        let (bad, found, _) = messages(items, [&deep, &many, b"{\"a\": [{\"f499\": 1}]}"]);
        assert_eq!(bad, [0, 1]);
        assert_eq!(
            found,
            [
                "values are nested more than 500 deep",
                "field a: the record takes more than 1048576 bytes decoded, the limit (max.decoded.bytes)"
            ]
        );
    }
}
