//! Decodes a column of JSON values.

use arrow_schema::DataType;

use super::plan::{Node, of_type};
use super::reader::Reader;
use crate::values::fault::Fault;
use crate::values::rows::{Decoded, Failure, Values, rows_of};
use crate::values::slot::Slot;

/// Decodes values into columns of a type.
pub struct Decoder {
    slot: Slot,
    node: Node,
    kind: DataType,
}

impl Decoder {
    pub fn new(kind: &DataType) -> Result<Self, Fault> {
        let (slot, node) = of_type(kind)?;
        let kind = slot.data_type();
        Ok(Self { slot, node, kind })
    }

    pub fn kind(&self) -> &DataType {
        &self.kind
    }

    /// Decodes all values. A null value, and one that cannot be decoded, becomes a null row.
    pub fn decode(&self, values: &impl Values) -> Result<Decoded, Failure> {
        let mut scratch = vec![];
        let rows = rows_of(values, &self.slot, |_, value, column| {
            Reader::read(value, &mut scratch, &self.node, column).map_err(|fault| (None, fault))
        })?;
        rows.finish(&self.kind)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Field;

    use super::*;

    fn messages(kind: DataType, values: [&[u8]; 3]) -> (Vec<usize>, Vec<String>, usize) {
        let kind = DataType::Struct(vec![Field::new("a", kind, true)].into());
        let decoded = Decoder::new(&kind).unwrap().decode(&values).unwrap();
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
        let decoded = Decoder::new(&kind).unwrap().decode(&values).unwrap();
        let texts = &decoded.data.child_data()[0];
        assert_eq!((texts.null_count(), texts.buffers()[1].as_slice()), (2, &b"y"[..]));
        assert!(decoded.bad.is_empty());
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
            ["values are nested more than 500 deep", "field a: an array or map has too many items for its bytes"]
        );
    }
}
