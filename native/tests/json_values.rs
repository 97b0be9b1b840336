//! Decodes millions of mutated JSON values.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[path = "support/changes.rs"]
mod changes;
#[path = "support/mutated_values.rs"]
mod mutated_values;

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, TimeUnit};
use changes::Rng;
use kafkagroup_native::json::decoder::Decoder;
use kafkagroup_native::values::framing::Framing;
use mutated_values::{LIMITS, Subject};

fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("element", item, true)))
}

fn map(value: DataType) -> DataType {
    let entry = vec![Field::new("key", DataType::Utf8, false), Field::new("value", value, true)];
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entry.into()), false)), false)
}

/// Returns a struct whose fields are `a0`, `a1` and so on.
fn record(fields: Vec<DataType>) -> DataType {
    let named = |(number, kind)| Field::new(format!("a{number}"), kind, true);
    DataType::Struct(fields.into_iter().enumerate().map(named).collect::<Fields>())
}

fn types() -> Vec<DataType> {
    let timestamp = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    let scalars = vec![
        DataType::Boolean,
        DataType::Int32,
        DataType::Int64,
        DataType::Float32,
        DataType::Float64,
        DataType::Utf8,
        DataType::Binary,
        DataType::Date32,
        timestamp(Some("UTC")),
        timestamp(None),
        DataType::Decimal128(12, 2),
    ];
    vec![
        record(scalars.clone()),
        // More names than are compared one by one.
        record(scalars.iter().chain(&scalars).cloned().collect()),
        list(map(list(DataType::Utf8))),
        record(vec![map(record(vec![DataType::Int64, list(record(scalars))])), list(map(DataType::Float64))]),
    ]
}

/// Appends a text of a type, with fields that the type does not have.
fn write(kind: &DataType, rng: &mut Rng, depth: usize, out: &mut Vec<u8>) {
    if rng.chance(8) {
        return out.extend(b"null");
    }
    if rng.chance(4) {
        out.push(b" \n\t"[rng.below(3)]);
    }
    let two = |rng: &mut Rng, most: usize| format!("{:02}", 1 + rng.below(most));
    let text = match kind {
        DataType::Boolean => ["true", "false"][rng.below(2)].to_owned(),
        DataType::Int32 => (rng.next() as i32 >> rng.below(32)).to_string(),
        DataType::Int64 => (rng.next() as i64 >> rng.below(64)).to_string(),
        DataType::Float32 | DataType::Float64 => match rng.below(4) {
            0 => "\"NaN\"".to_owned(),
            1 => format!("{}e{}", rng.below(100), rng.below(20)),
            _ => format!("{}.{}", rng.next() as i32, rng.below(1000)),
        },
        DataType::Decimal128(..) => format!("{}.{}", rng.next() as i16, rng.below(1000)),
        DataType::Date32 => format!("\"20{}-{}-{}\"", two(rng, 98), two(rng, 12), two(rng, 28)),
        DataType::Timestamp(_, zone) => {
            let zone = if zone.is_some() { ["Z", "+02:00", "-11:30"][rng.below(3)] } else { "" };
            let day = format!("20{}-{}-{}", two(rng, 98), two(rng, 12), two(rng, 28));
            format!("\"{day}T{}:{}:{}.{}{zone}\"", two(rng, 22), two(rng, 58), two(rng, 58), rng.below(1_000_000))
        }
        DataType::Binary => ["\"\"", "\"YQ==\"", "\"YWI=\"", "\"YWJj\""][rng.below(4)].to_owned(),
        DataType::Utf8 => {
            ["\"\"", "\"plain\"", "\"\\n\\u00e4\\ud83d\\ude00\"", "\"\u{e9}\u{4e2d}\"", "-1.5e3", "{\"x\": [true, {}]}"]
                [rng.below(6)]
            .to_owned()
        }
        DataType::List(item) => {
            return many(b"[]", rng, depth, out, |rng, out| write(item.data_type(), rng, depth + 1, out));
        }
        DataType::Map(entries, _) => {
            let DataType::Struct(both) = entries.data_type() else { panic!("{entries}") };
            return many(b"{}", rng, depth, out, |rng, out| {
                out.extend(format!("\"{}\":", ["k", "other", "\\u006b"][rng.below(3)]).bytes());
                write(both[1].data_type(), rng, depth + 1, out);
            });
        }
        DataType::Struct(fields) => {
            return many(b"{}", rng, depth, out, |rng, out| {
                // Fields come in any order, some of them twice, and one that nobody has.
                match fields.get(rng.below(fields.len() + 1)) {
                    Some(field) => {
                        out.extend(format!("\"{}\": ", field.name()).bytes());
                        write(field.data_type(), rng, depth + 1, out);
                    }
                    None => out.extend(b"\"unknown\": [1, {\"a0\": \"\\\"\"}]"),
                }
            });
        }
        other => panic!("{other}"),
    };
    out.extend(text.bytes());
}

/// Appends some items with commas, in the brackets.
fn many(
    brackets: &[u8; 2],
    rng: &mut Rng,
    depth: usize,
    out: &mut Vec<u8>,
    mut item: impl FnMut(&mut Rng, &mut Vec<u8>),
) {
    out.push(brackets[0]);
    for number in 0..rng.below(if depth > 5 { 1 } else { 6 }) {
        if number > 0 {
            out.push(b',');
        }
        item(rng, out);
    }
    out.push(brackets[1]);
}

fn subjects() -> Vec<Subject> {
    let subject = |kind: DataType| {
        let decoder = Decoder::new(&kind, Framing::None, false).unwrap();
        Subject {
            decode: Box::new(move |values| decoder.decode(values, LIMITS)),
            value: Box::new(move |rng| {
                let mut text = vec![];
                write(&kind, rng, 0, &mut text);
                text
            }),
        }
    };
    types().into_iter().map(subject).collect()
}

#[test]
fn some_mutations() {
    mutated_values::some_mutations(&subjects());
}

#[test]
#[ignore = "minutes long; run by tests/fuzz"]
fn millions_of_mutations() {
    mutated_values::millions_of_mutations(&subjects());
}
