//! Decodes millions of mutated Protobuf values.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[path = "support/changes.rs"]
mod changes;
#[path = "support/mutated_values.rs"]
mod mutated_values;

use std::collections::HashMap;

use changes::Rng;
use kafkagroup_native::protobuf::decoder::Decoder;
use kafkagroup_native::protobuf::descriptors::Source;
use kafkagroup_native::values::framing::Framing;
use mutated_values::{LIMITS, Subject};
use protox::Compiler;
use protox::file::{File, FileResolver, GoogleFileResolver};
use protox::prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

const SCALARS: &str = "
    int32 a = 1; sint32 b = 2; uint32 c = 3; int64 d = 4; sint64 e = 5; uint64 f = 6; fixed32 g = 7; sfixed32 h = 8;
    fixed64 i = 9; sfixed64 j = 10; float k = 11; double l = 12; bool m = 13; string n = 14; bytes o = 15;
    google.protobuf.Timestamp p = 16; google.protobuf.Duration q = 300; optional int32 r = 20; E s = 21;";

fn texts() -> Vec<String> {
    let head = "import \"google/protobuf/timestamp.proto\"; import \"google/protobuf/duration.proto\";";
    let enums = "enum E { ZERO = 0; ONE = 1; FAR = 77; }";
    let nested = "message M {
        message Inner { repeated int32 n = 1; string text = 2; Deep deep = 3; map<string, Deep> deeps = 4; }
        message Deep { repeated string words = 1; oneof which { int64 number = 2; string word = 3; Deeper deeper = 4; } }
        message Deeper { bool yes = 1; map<int64, double> numbers = 2; repeated E many = 3; }
        Inner one = 1; repeated Inner more = 2; map<bool, Inner> by = 3; oneof either { Inner left = 4; Deep right = 5; }
        repeated google.protobuf.Timestamp times = 6; }";
    let old = "syntax = \"proto2\"; message M { enum C { X = 1; Y = 2; } required int32 must = 1;
        optional group Part = 2 { optional string s = 1 [default = \"by default\"]; repeated C cs = 2; }
        repeated group Parts = 3 { required sint64 n = 1; } optional C c = 4 [default = Y]; repeated bytes all = 5; }";
    vec![
        format!("syntax = \"proto3\"; {head} {enums} message M {{ {SCALARS} }}"),
        format!("syntax = \"proto3\"; {head} {enums} {nested}"),
        old.to_owned(),
    ]
}

struct One(String);

impl FileResolver for One {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            "m.proto" => File::from_source(name, &self.0),
            _ => GoogleFileResolver::new().open_file(name),
        }
    }
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the fields of a message: in any order, some of them twice, and some that nobody knows.
fn write(kind: &MessageDescriptor, rng: &mut Rng, depth: usize, out: &mut Vec<u8>) {
    let fields: Vec<FieldDescriptor> = kind.fields().collect();
    for field in fields.iter().filter(|field| field.is_required()) {
        write_field(field, rng, depth, out);
    }
    for _ in 0..rng.below(if depth > 4 { 2 } else { 7 }) {
        match fields.get(rng.below(fields.len() + 1)) {
            Some(field) => write_field(field, rng, depth, out),
            None => out.extend([0xfa, 0x3f, 2, 0, 0]),
        }
    }
}

fn write_field(field: &FieldDescriptor, rng: &mut Rng, depth: usize, out: &mut Vec<u8>) {
    let tag = |wire: u64| u64::from(field.number()) << 3 | wire;
    let number = rng.next() >> rng.below(64);
    match field.kind() {
        Kind::Message(inner) if field.is_group() => {
            varint(tag(3), out);
            write(&inner, rng, depth + 1, out);
            varint(tag(4), out);
        }
        Kind::Message(inner) => {
            let mut bytes = vec![];
            if inner.full_name().starts_with("google") {
                varint(8, &mut bytes);
                varint(number >> 24, &mut bytes);
                varint(16, &mut bytes);
                varint(number >> 40, &mut bytes);
            } else {
                write(&inner, rng, depth + 1, &mut bytes);
            }
            varint(tag(2), out);
            varint(bytes.len() as u64, out);
            out.extend(bytes);
        }
        Kind::String | Kind::Bytes => {
            let text = ["", "plain", "\u{e9}\u{4e2d}"][rng.below(3)];
            varint(tag(2), out);
            varint(text.len() as u64, out);
            out.extend(text.bytes());
        }
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => {
            varint(tag(5), out);
            out.extend((number as u32).to_le_bytes());
        }
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => {
            varint(tag(1), out);
            out.extend(number.to_le_bytes());
        }
        _ if field.is_list() && rng.chance(2) => {
            let mut packed = vec![];
            for _ in 0..rng.below(5) {
                varint(rng.next() >> 60, &mut packed);
            }
            varint(tag(2), out);
            varint(packed.len() as u64, out);
            out.extend(packed);
        }
        _ => {
            varint(tag(0), out);
            varint(number, out);
        }
    }
}

fn subjects() -> Vec<Subject> {
    let subject = |text: String| {
        let decoder = Decoder::new(Source::Text(&text, HashMap::new()), None, None, Framing::None, 0).unwrap();
        let mut compiler = Compiler::with_file_resolver(One(text));
        let pool = compiler.open_file("m.proto").unwrap().descriptor_pool();
        let message = pool.get_message_by_name("M").unwrap();
        Subject {
            decode: Box::new(move |values| decoder.decode(values, LIMITS)),
            value: Box::new(move |rng| {
                let mut bytes = vec![];
                write(&message, rng, 0, &mut bytes);
                bytes
            }),
        }
    };
    texts().into_iter().map(subject).collect()
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
