//! Decodes millions of mutated Avro values.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[path = "support/changes.rs"]
mod changes;
#[path = "support/mutated_values.rs"]
mod mutated_values;

use changes::Rng;
use kafkagroup_native::avro::decoder::Decoder;
use kafkagroup_native::avro::schema::{Id, Kind, Schema};
use kafkagroup_native::values::framing::Framing;
use kafkagroup_native::varint::put;
use mutated_values::{LIMITS, Subject};

/// Reader schemas, each with its writer schemas.
const SCHEMAS: [(&str, &[&str]); 5] = [
    (
        r#"{"type": "record", "name": "All", "fields": [
            {"name": "z", "type": "boolean"}, {"name": "i", "type": "int"}, {"name": "l", "type": "long"},
            {"name": "f", "type": "float"}, {"name": "d", "type": "double"}, {"name": "b", "type": "bytes"},
            {"name": "s", "type": "string"}, {"name": "x", "type": {"type": "fixed", "name": "X", "size": 5}},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
            {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}}]}"#,
        &[r#"{"type": "record", "name": "All", "fields": [
            {"name": "more", "type": {"type": "map", "values": ["null", "All"]}},
            {"name": "z", "type": "boolean"}, {"name": "i", "type": "int"}, {"name": "l", "type": "int"},
            {"name": "f", "type": "long"}, {"name": "d", "type": "float"}, {"name": "b", "type": "string"},
            {"name": "s", "type": "bytes"}, {"name": "x", "type": {"type": "fixed", "name": "X", "size": 5}},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["B", "C", "D", "A"]}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "at", "type": ["long", "null"]}, {"name": "sum", "type": "bytes"}]}"#],
    ),
    (
        r#"{"type": "map", "values": {"type": "map", "values": {"type": "array", "items": ["null", "string", "double"]}}}"#,
        &[
            r#"{"type": "map", "values": {"type": "map", "values": {"type": "array", "items": ["string", "float", "null"]}}}"#,
        ],
    ),
    (
        r#"{"type": "record", "name": "Node", "fields": [{"name": "id", "type": "long"},
            {"name": "next", "type": ["null", "Node"]}, {"name": "all", "type": {"type": "array", "items": "Node"}}]}"#,
        &[],
    ),
    (
        r#"{"type": "record", "name": "Lists", "fields": [{"name": "nothing", "type": {"type": "array", "items": "null"}},
            {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
                {"name": "text", "type": "string", "default": "a default of some bytes"},
                {"name": "flags", "type": {"type": "array", "items": "boolean"}, "default": [true, false, true]}]}}},
            {"name": "by", "type": {"type": "map", "values": "Item"}}]}"#,
        &[
            r#"{"type": "record", "name": "Lists", "fields": [{"name": "nothing", "type": {"type": "array", "items": "null"}},
            {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": []}}},
            {"name": "by", "type": {"type": "map", "values": "Item"}}]}"#,
        ],
    ),
    (
        r#"["null", {"type": "record", "name": "A", "fields": [{"name": "v", "type": ["int", "string", "boolean"]}]},
            {"type": "record", "name": "B", "fields": [{"name": "w", "type": {"type": "map", "values": "A"}}]}]"#,
        &[r#"{"type": "record", "name": "B", "fields": [{"name": "w", "type": {"type": "map", "values":
            {"type": "record", "name": "A", "fields": [{"name": "v", "type": ["string", "int"]}]}}}]}"#],
    ),
];

fn subjects() -> Vec<Subject> {
    let subject = |(reader, writers): (&str, &[&str])| {
        let mut decoder = Decoder::new(reader, None, Framing::Confluent, 3).unwrap();
        let texts: Vec<&str> = std::iter::once(reader).chain(writers.iter().copied()).collect();
        for (id, text) in texts.iter().enumerate() {
            decoder.add(id as u64, text).unwrap();
        }
        let writers: Vec<Schema> = texts.iter().map(|text| Schema::parse(text).unwrap()).collect();
        Subject {
            decode: Box::new(move |values| decoder.decode(values, LIMITS)),
            value: Box::new(move |rng| value(&writers, rng)),
        }
    };
    SCHEMAS.into_iter().map(subject).collect()
}

/// Appends a random value of a type.
fn write(schema: &Schema, id: Id, rng: &mut Rng, depth: usize, out: &mut Vec<u8>) {
    match schema.kind(id) {
        Kind::Null => {}
        Kind::Boolean => out.push(rng.below(2) as u8),
        Kind::Int => put(out, i64::from(rng.next() as i32 >> rng.below(32))),
        Kind::Long => put(out, rng.next() as i64 >> (12 + rng.below(50))),
        Kind::Float => out.extend((rng.next() as f32).to_le_bytes()),
        Kind::Double => out.extend((rng.next() as f64).to_le_bytes()),
        // Bytes may be read as a string or a decimal.
        Kind::Bytes | Kind::String => {
            let len = 1 + rng.below(4);
            put(out, len as i64);
            out.extend((0..len).map(|_| b'a' + rng.below(26) as u8));
        }
        Kind::Fixed(size) => out.extend((0..*size).map(|_| rng.next() as u8)),
        // Symbols that no reader schema lacks.
        Kind::Enum { .. } => put(out, rng.below(2) as i64),
        Kind::Record(fields) => fields.iter().for_each(|field| write(schema, field.kind, rng, depth + 1, out)),
        Kind::Union(branches) => {
            let null = branches.iter().position(|&branch| matches!(schema.kind(branch), Kind::Null));
            let branch = if depth > 5 { null.unwrap_or(0) } else { rng.below(branches.len()) };
            put(out, branch as i64);
            write(schema, branches[branch], rng, depth + 1, out);
        }
        &(Kind::Array(item) | Kind::Map(item)) => {
            let count = if depth > 5 { 0 } else { rng.below(4) };
            let mut items = vec![];
            for _ in 0..count {
                if matches!(schema.kind(id), Kind::Map(_)) {
                    items.extend([2, b'a' + rng.below(3) as u8]);
                }
                write(schema, item, rng, depth + 1, &mut items);
            }
            if count > 0 && rng.chance(2) {
                put(out, -(count as i64));
                put(out, items.len() as i64);
            } else if count > 0 {
                put(out, count as i64);
            }
            out.extend(items);
            out.push(0);
        }
    }
}

/// Returns a value of one of the writer schemas, whose ids count from 0.
fn value(writers: &[Schema], rng: &mut Rng) -> Vec<u8> {
    let id = rng.below(writers.len());
    let mut bytes = vec![0, 0, 0, 0, id as u8];
    write(&writers[id], writers[id].root, rng, 0, &mut bytes);
    bytes
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
