//! Decodes millions of mutated Avro values: none may crash, hang, take more memory than its bytes allow, or leave a trace in
//! the rows around it.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[path = "support/changes.rs"]
mod changes;

use std::time::{Duration, Instant};

use changes::{Rng, mutate};
use kafkagroup_native::arrays::Outside;
use kafkagroup_native::avro::decoder::{Decoded, Decoder, Values};
use kafkagroup_native::avro::framing::Framing;
use kafkagroup_native::avro::schema::{Id, Kind, Schema};
use kafkagroup_native::varint::put;

const ROWS: usize = 32;
/// More than a row of any of the schemas takes without the items of its arrays and maps.
const ROW_BYTES: usize = 2048;
/// As in `avro/run.rs`, and the bytes of texts.
const FIXED_BYTES: usize = 8 << 10;
const BYTES_PER_BYTE: usize = 513;

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

/// A decoder with all its writer schemas; their ids count from 0.
struct Subject {
    decoder: Decoder,
    writers: Vec<Schema>,
}

struct Column(Vec<Option<Vec<u8>>>);

impl Values for Column {
    fn rows(&self) -> usize {
        self.0.len()
    }

    fn get(&self, row: usize) -> Result<Option<&[u8]>, Outside> {
        Ok(self.0[row].as_deref())
    }
}

fn subjects() -> Vec<Subject> {
    let subject = |(reader, writers): (&str, &[&str])| {
        let mut decoder = Decoder::new(reader, None, Framing::Confluent, 3).unwrap();
        let texts: Vec<&str> = std::iter::once(reader).chain(writers.iter().copied()).collect();
        for (id, text) in texts.iter().enumerate() {
            decoder.add(id as u64, text).unwrap();
        }
        Subject { decoder, writers: texts.iter().map(|text| Schema::parse(text).unwrap()).collect() }
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

fn value(subject: &Subject, rng: &mut Rng) -> Vec<u8> {
    let id = rng.below(subject.writers.len());
    let mut bytes = vec![0, 0, 0, 0, id as u8];
    write(&subject.writers[id], subject.writers[id].root, rng, 0, &mut bytes);
    bytes
}

fn check(decoded: &Decoded, values: &Column) {
    decoded.data.validate_full().unwrap();
    assert_eq!(decoded.data.len(), values.rows());
    let bytes: usize = values.0.iter().flatten().map(Vec::len).sum();
    let allowed = values.rows() * (ROW_BYTES + FIXED_BYTES) + BYTES_PER_BYTE * bytes;
    let taken = decoded.data.get_slice_memory_size().unwrap();
    assert!(taken <= allowed, "{taken} bytes of {allowed}");
}

#[derive(Default)]
struct Tally {
    good: u64,
    bad: u64,
}

fn run(mutations: u64, deadline: Instant, first_seed: u64) -> Tally {
    let (mut rng, mut tally, subjects) = (Rng(first_seed), Tally::default(), subjects());
    while tally.good + tally.bad < mutations {
        assert!(Instant::now() < deadline, "{} of {mutations} mutations in the time allowed", tally.good + tally.bad);
        let subject = &subjects[rng.below(subjects.len())];
        let mut values = Column((0..ROWS).map(|_| Some(value(subject, &mut rng))).collect());
        let original = subject.decoder.decode(&values).unwrap();
        assert!(original.bad.is_empty(), "{:?}", original.messages);
        check(&original, &values);
        for row in (0..ROWS).filter(|row| row % 4 != 0) {
            mutate(&mut rng, values.0[row].as_mut().unwrap(), |_| false);
        }
        let mutated = subject.decoder.decode(&values).unwrap();
        check(&mutated, &values);
        assert!(mutated.bad.iter().all(|bad| bad.row % 4 != 0 && bad.message < mutated.messages.len()));
        tally.bad += mutated.bad.len() as u64;
        tally.good += (ROWS - ROWS / 4 - mutated.bad.len()) as u64;
        for bad in &mutated.bad {
            values.0[bad.row] = None;
        }
        let without = subject.decoder.decode(&values).unwrap();
        assert!(without.bad.is_empty());
        assert!(without.data == mutated.data, "bad rows have left a trace: {:02x?}", values.0);
    }
    tally
}

#[test]
fn some_mutations() {
    let tally = run(30_000, Instant::now() + Duration::from_secs(300), 1);
    assert!(tally.good > 1000 && tally.bad > 1000);
}

/// `MUTATIONS` (10 million) from `MUTATION_SEED` (1) within `MUTATION_SECONDS` (1500).
#[test]
#[ignore = "minutes long; run by tests/fuzz"]
fn millions_of_mutations() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (mutations, seconds) = (number("MUTATIONS", 10_000_000), number("MUTATION_SECONDS", 1500));
    let start = Instant::now();
    let tally = run(mutations, start + Duration::from_secs(seconds), number("MUTATION_SEED", 1));
    let total = tally.good + tally.bad;
    println!("{total} mutations in {:.0} s: good {}, bad {}", start.elapsed().as_secs_f64(), tally.good, tally.bad);
}
