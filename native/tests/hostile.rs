//! Schemas and values of strangers on a small stack: musl and macOS give threads no more.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use arrow_schema::{DataType, Field};
use kafkagroup_native::arrays::Outside;
use kafkagroup_native::values::budget::{DEFAULT_LIMIT, MOST};
use kafkagroup_native::values::framing::Framing;
use kafkagroup_native::values::rows::{Decoded, Limits, Values};
use kafkagroup_native::{avro, json, protobuf};

const LIMITS: Limits = Limits { record: DEFAULT_LIMIT, batch: MOST };
const DEEP: usize = 100_000;

struct One(Vec<u8>);

impl Values for One {
    fn rows(&self) -> usize {
        1
    }

    fn get(&self, _: usize) -> Result<Option<&[u8]>, Outside> {
        Ok(Some(&self.0))
    }
}

/// Runs with 512 KiB of stack. An overflow ends the process.
fn on_a_small_stack<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new().stack_size(512 << 10).spawn(run).unwrap().join().unwrap()
}

/// Returns what adding the writer schema says, or what is wrong with the value.
fn avro_says(reader: String, writer: String, value: Vec<u8>) -> String {
    on_a_small_stack(move || {
        let mut decoder = match avro::decoder::Decoder::new(&reader, None, Framing::None, 0) {
            Ok(decoder) => decoder,
            Err(fault) => return fault.to_string(),
        };
        match decoder.add(0, &writer) {
            Ok(()) => said(&decoder.decode(&One(value), LIMITS).unwrap()),
            Err(fault) => fault.to_string(),
        }
    })
}

fn said(decoded: &Decoded) -> String {
    decoded.messages.first().map_or("read".into(), ToString::to_string)
}

fn protobuf_says(schema: String, value: Vec<u8>) -> String {
    on_a_small_stack(move || {
        let source = protobuf::descriptors::Source::Text(&schema, HashMap::new());
        match protobuf::decoder::Decoder::new(source, None, None, Framing::None, 0) {
            Ok(decoder) => said(&decoder.decode(&One(value), LIMITS).unwrap()),
            Err(fault) => fault.to_string(),
        }
    })
}

fn record(name: &str, fields: &str) -> String {
    format!(r#"{{"type": "record", "name": "{name}", "fields": [{fields}]}}"#)
}

fn field(name: &str, kind: &str) -> String {
    format!(r#"{{"name": "{name}", "type": {kind}}}"#)
}

/// Returns fields of many records, each of which has the one before.
fn chain(prefix: &str, count: usize) -> String {
    let mut fields = String::new();
    for i in 0..count {
        let inner = if i == 0 { r#""int""#.into() } else { format!(r#"["null", "{prefix}{}"]"#, i - 1) };
        let one = record(&format!("{prefix}{i}"), &field("f", &inner));
        write!(fields, "{}{}", if i == 0 { "" } else { "," }, field(&format!("x{i}"), &one)).unwrap();
    }
    fields
}

#[test]
fn a_schema_whose_records_have_each_other_is_refused() {
    let deep = chain("R", 5000);
    let writer = record(
        "T",
        &format!("{},{}", field("a", &format!(r#"["int", {}]"#, record("All", &deep))), field("b", r#""R4999""#)),
    );
    let reader = record("T", &field("a", r#""int""#));
    assert!(avro_says(reader, writer.clone(), vec![0, 2]).contains("nested more than 400 deep"));
    // Both have them, and their unions are compared.
    let both = format!(r#"["null", {writer}]"#);
    assert!(avro_says(both.clone(), both, vec![0]).contains("nested more than 64 deep"));
}

#[test]
fn a_record_that_is_compared_with_one_in_itself_ends() {
    let writer = record(
        "T",
        &format!("{},{}", field("all", &record("All", &chain("R", 5000))), field("p", r#"["null", "R4999"]"#)),
    );
    let reader = record(
        "T",
        &field(
            "p",
            &format!(r#"["null", {}]"#, record("P", r#"{"name": "f", "type": ["null", "P"], "default": null}"#)),
        ),
    );
    assert!(!avro_says(reader, writer, vec![0; 100]).is_empty());
}

#[test]
fn a_text_that_is_nested_is_refused() {
    for (open, close) in [("[", "]"), (r#"{"type": "array", "items": "#, "}")] {
        let text = format!("{}\"int\"{}", open.repeat(DEEP), close.repeat(DEEP));
        assert!(avro_says(text.clone(), text, vec![]).contains("nested more than 260 deep"));
    }
    let default = format!("{}{}", "[".repeat(150), "]".repeat(150));
    let reader =
        record("T", &format!(r#"{{"name": "a", "type": {{"type": "array", "items": "int"}}, "default": {default}}}"#));
    assert!(avro_says(reader, record("T", ""), vec![]).contains("the default"));
}

#[test]
fn the_deepest_types_are_read() {
    // Nullable records, which are four levels of JSON each.
    let mut kind = String::from(r#""int""#);
    for i in 0..63 {
        kind = format!(r#"["null", {}]"#, record(&format!("R{i}"), &field("f", &kind)));
    }
    assert_eq!(avro_says(kind.clone(), kind, [vec![2; 63], vec![2]].concat()), "read");
    let mut list = DataType::Int32;
    for _ in 0..64 {
        list = DataType::List(Arc::new(Field::new("element", list, true)));
    }
    let text = [b"[".repeat(64), b"1".to_vec(), b"]".repeat(64)].concat();
    let decoded = on_a_small_stack(move || {
        json::decoder::Decoder::new(&list, Framing::None, false).unwrap().decode(&One(text), LIMITS).unwrap()
    });
    assert_eq!(said(&decoded), "read");
    let messages: String = (0..63).map(|i| format!("message M{i} {{ M{} f = 1; }}", i + 1)).collect();
    let mut value = vec![];
    for _ in 0..63 {
        value = [&[10, value.len() as u8][..], &value].concat();
    }
    assert_eq!(protobuf_says(format!("syntax = \"proto3\"; {messages} message M63 {{ int32 v = 1; }}"), value), "read");
}

#[test]
fn a_value_that_is_nested_is_bad() {
    // In records that are passed over, with arrays in between.
    let nested = format!("{}[\"null\", \"N\"]{}", r#"{"type": "array", "items": "#.repeat(50), "}".repeat(50));
    let writer = record("T", &format!("{},{}", field("n", &record("N", &field("f", &nested))), field("v", r#""int""#)));
    let reader = record("T", &field("v", r#""int""#));
    assert!(avro_says(reader, writer, vec![2; DEEP]).contains("nested more than 400 deep"));
    // As a text.
    let list = record("N", &field("f", r#"["null", "N"]"#));
    assert!(avro_says(list.clone(), list, vec![2; DEEP]).contains("nested more than 250 deep"));
    let tree = "syntax = \"proto3\"; message N { N f = 1; int32 v = 2; }".to_owned();
    let mut value = vec![];
    for _ in 0..2000 {
        let (mut left, mut prefix) = (value.len(), vec![10]);
        while left >= 0x80 {
            prefix.push(left as u8 | 0x80);
            left >>= 7;
        }
        prefix.push(left as u8);
        prefix.extend(value);
        value = prefix;
    }
    assert!(protobuf_says(tree.clone(), value).contains("nested more than 100 deep"));
    assert!(protobuf_says(tree, [0x0b].repeat(DEEP)).contains("deep"));
    let any = DataType::Struct(vec![Field::new("a", DataType::Utf8, true)].into());
    for text in [b"[".repeat(DEEP), [b"{\"a\": ".to_vec(), b"[".repeat(DEEP)].concat(), b"{\"b\":".repeat(DEEP)] {
        let kind = any.clone();
        let decoded = on_a_small_stack(move || {
            json::decoder::Decoder::new(&kind, Framing::None, false).unwrap().decode(&One(text), LIMITS).unwrap()
        });
        assert_ne!(said(&decoded), "read");
    }
}

#[test]
fn a_proto_file_that_is_nested_is_refused_or_read() {
    let nested = format!("{}{}", "message M {".repeat(DEEP), "}".repeat(DEEP));
    let options = format!("message M {{ int32 v = 1 [(o) = {}{}]; }}", "{ a: ".repeat(20_000), "}".repeat(20_000));
    let name = format!("message M {{ {} f = 1; }}", ".a".repeat(DEEP));
    let messages: String = (0..5000).map(|i| format!("message M{i} {{ M{} f = 1; }}", i + 1)).collect();
    // Custom options are left out.
    assert_eq!(protobuf_says(format!("syntax = \"proto3\"; {options}"), vec![]), "read");
    for schema in [nested, name, format!("{messages} message M5000 {{ int32 v = 1; }}")] {
        assert_ne!(protobuf_says(format!("syntax = \"proto3\"; {schema}"), vec![]), "read");
    }
}
