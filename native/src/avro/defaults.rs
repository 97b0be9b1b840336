//! The default of a field in Avro's binary encoding.

use serde_json::Value;

use super::schema::{Id, Kind, Schema};
use crate::values::fault::Fault;
use crate::varint::put;

const MAX_NESTING: usize = 64;
/// The limit on the tried parts of a default: each branch of a union is tried with all unions below.
const MAX_STEPS: usize = 1_000_000;

/// Returns the binary encoding of a default, like Java's `Accessor.encode`.
pub fn encode(schema: &Schema, id: Id, default: &Value) -> Result<Vec<u8>, Fault> {
    let mut bytes = vec![];
    append(schema, id, default, &mut bytes, 0, &mut { MAX_STEPS })?;
    Ok(bytes)
}

fn append(
    schema: &Schema,
    id: Id,
    json: &Value,
    out: &mut Vec<u8>,
    nesting: usize,
    steps: &mut usize,
) -> Result<(), Fault> {
    let wrong = || Fault::new(format!("the default is not a value of {}", schema.describe(id)));
    if nesting > MAX_NESTING || *steps == 0 {
        return Err(Fault::new(format!("the default is nested more than {MAX_NESTING} deep, or too large")));
    }
    *steps -= 1;
    match (schema.kind(id), json) {
        (Kind::Null, Value::Null) => {}
        (Kind::Boolean, Value::Bool(value)) => out.push(u8::from(*value)),
        (Kind::Int, Value::Number(number)) => {
            let value = whole(number).and_then(|value| i32::try_from(value).ok()).ok_or_else(wrong)?;
            put(out, value.into());
        }
        (Kind::Long, Value::Number(number)) => put(out, whole(number).ok_or_else(wrong)?),
        (Kind::Float, Value::Number(number)) => {
            out.extend_from_slice(&(number.as_f64().ok_or_else(wrong)? as f32).to_le_bytes());
        }
        (Kind::Double, Value::Number(number)) => {
            out.extend_from_slice(&number.as_f64().ok_or_else(wrong)?.to_le_bytes());
        }
        (Kind::String, Value::String(text)) => prefixed(out, text.as_bytes()),
        (Kind::Bytes, Value::String(text)) => prefixed(out, &latin1(text)),
        (Kind::Fixed(size), Value::String(text)) => {
            let bytes = latin1(text);
            if bytes.len() != *size {
                return Err(wrong());
            }
            out.extend_from_slice(&bytes);
        }
        (Kind::Enum { symbols, .. }, Value::String(text)) => {
            let index = symbols.iter().position(|symbol| **symbol == **text).ok_or_else(wrong)?;
            put(out, index as i64);
        }
        (&Kind::Array(item), Value::Array(values)) => {
            if !values.is_empty() {
                put(out, values.len() as i64);
            }
            for value in values {
                append(schema, item, value, out, nesting + 1, steps)?;
            }
            out.push(0);
        }
        (&Kind::Map(item), Value::Object(values)) => {
            if !values.is_empty() {
                put(out, values.len() as i64);
            }
            for (key, value) in values {
                prefixed(out, key.as_bytes());
                append(schema, item, value, out, nesting + 1, steps)?;
            }
            out.push(0);
        }
        (Kind::Record(fields), Value::Object(values)) => {
            for field in fields {
                let value = values.get(&*field.name).or(field.default.as_ref()).ok_or_else(wrong)?;
                append(schema, field.kind, value, out, nesting + 1, steps)
                    .map_err(|fault| fault.within(&field.name))?;
            }
        }
        (Kind::Union(branches), json) => {
            for (i, &branch) in branches.iter().enumerate() {
                let start = out.len();
                put(out, i as i64);
                if append(schema, branch, json, out, nesting + 1, steps).is_ok() {
                    return Ok(());
                }
                out.truncate(start);
            }
            return Err(wrong());
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

/// Returns a number without a fraction, which JSON may write as 1.0.
fn whole(number: &serde_json::Number) -> Option<i64> {
    let exact = |value: f64| (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i64);
    number.as_i64().or_else(|| number.as_f64().and_then(exact))
}

/// Returns the bytes of a text in ISO-8859-1, the form in which a schema has a default of type bytes.
fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|letter| u8::try_from(letter).unwrap_or(b'?')).collect()
}

fn prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as i64);
    out.extend_from_slice(bytes);
}
