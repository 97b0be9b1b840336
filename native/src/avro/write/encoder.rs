//! Encodes the rows of an array, each as a value of one schema.

use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::fit::fit;
use super::run::Writer;
use crate::avro::schema::Schema;
use crate::values::cells::Cells;
use crate::values::encode::{Encode, Failure, encode_rows, head};
use crate::values::fault::Fault;

/// Encodes values of a schema.
#[derive(Debug)]
pub struct Encoder {
    schema: Schema,
    /// The bytes before each value.
    head: Vec<u8>,
}

impl Encoder {
    /// Makes an encoder. `id`: the schema's id in a registry, for Confluent's framing; None: no framing.
    pub fn new(schema: &str, id: Option<u32>) -> Result<Self, Fault> {
        let schema = Schema::parse(schema)?;
        Ok(Self { schema, head: head(id) })
    }
}

impl Encode for Encoder {
    fn check(&self, kind: &DataType) -> Result<(), Fault> {
        fit(kind, &self.schema).map(|_| ())
    }

    fn encode(&self, cells: &Cells<'_>, rows: usize) -> Result<ArrayData, Failure> {
        let slot = fit(cells.kind, &self.schema).map_err(Failure::Type)?;
        encode_rows(&self.head, rows, &Writer::new(cells, &slot, Some(rows))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrays::Validity;
    use arrow_schema::{Field, Fields};

    fn bytes<const N: usize>(values: &[[u8; N]]) -> Vec<u8> {
        values.concat()
    }

    fn values(data: &ArrayData) -> Vec<Option<Vec<u8>>> {
        let (ends, bytes) = (data.buffers()[0].typed_data::<i32>(), data.buffers()[1].as_slice());
        (0..data.len())
            .map(|i| data.is_valid(i).then(|| bytes[ends[i] as usize..ends[i + 1] as usize].to_vec()))
            .collect()
    }

    const SCHEMA: &str = r#"{"type": "record", "name": "R", "fields": [
        {"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"]}]}"#;

    /// Calls `test` with a sliced struct of `n: int` (1, -1, 64) and `s: string` (null, "ab", "\xff").
    fn with_columns(valid: u8, test: impl FnOnce(&Cells<'_>)) {
        let kind = DataType::Struct(Fields::from(vec![
            Field::new("s", DataType::Utf8, true),
            Field::new("n", DataType::Int32, true),
        ]));
        let numbers = bytes(&[9i32, 1, -1, 64].map(i32::to_le_bytes));
        let ends = bytes(&[0i32, 0, 0, 2, 3].map(i32::to_le_bytes));
        let (present, valid) = ([0b1101u8], [valid]);
        let child = |kind, validity, values, data| Cells { kind, validity, first: 1, values, data, children: vec![] };
        let children = vec![
            child(&DataType::Utf8, Validity(Some(&present)), &ends, b"ab\xff"),
            child(&DataType::Int32, Validity(Some(&valid)), &numbers, &[]),
        ];
        test(&Cells { kind: &kind, validity: Validity(Some(&[0b0111])), first: 0, values: &[], data: &[], children });
    }

    #[test]
    fn rows_are_written_with_the_schemas_order_and_null_rows_stay_null() {
        let encoder = Encoder::new(SCHEMA, Some(258)).unwrap();
        with_columns(0b1111, |cells| {
            let Err(Failure::Value { row: 2, fault }) = encoder.encode(cells, 3) else { panic!() };
            assert_eq!(fault.to_string(), "field s: the string is not UTF-8");
            let done = encoder.encode(cells, 2).unwrap();
            let head = [0, 0, 0, 1, 2];
            let first = [&head[..], &[2, 0]].concat();
            let second = [&head[..], &[1, 2, 4, b'a', b'b']].concat();
            assert_eq!(values(&done), [Some(first), Some(second)]);
        });
    }

    #[test]
    fn a_null_that_the_schema_does_not_take_is_refused_with_its_row_and_path() {
        let encoder = Encoder::new(SCHEMA, None).unwrap();
        with_columns(0b1011, |cells| {
            let Err(Failure::Value { row: 1, fault }) = encoder.encode(cells, 2) else { panic!() };
            assert_eq!(fault.to_string(), "field n: the value is null, and the schema's type is not nullable");
        });
    }

    #[test]
    fn what_lies_outside_the_buffers_is_refused() {
        let encoder = Encoder::new(r#""string""#, None).unwrap();
        let ends = bytes(&[0i32, 2, 4].map(i32::to_le_bytes));
        let encode = |rows: usize, data: &[u8]| {
            let validity = Validity(None);
            let cells = Cells { kind: &DataType::Utf8, validity, first: 0, values: &ends, data, children: vec![] };
            matches!(encoder.encode(&cells, rows), Err(Failure::Outside))
        };
        assert_eq!([encode(2, b"abcd"), encode(3, b"abcd"), encode(2, b"abc")], [false, true, true]);
    }
}
