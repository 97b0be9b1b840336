//! A message as JSON, for a message that contains itself and for `google.protobuf.Struct`.
//!
//! The text is Protobuf's JSON with the names of the `.proto` file, 64-bit numbers as numbers, and no absent fields.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write as _;

use protox::prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use super::plan::{instant_of, is_json, symbol_of, wire_of};
use super::wire::{Wire, prefixed, put_tag, skip, tag, varint};
use crate::json::texts;
use crate::values::budget::Budget;
use crate::values::fault::Fault;
use crate::varint::array;

/// The limit on nested messages in Google's runtimes.
const MAX_NESTING: usize = 100;
/// The memory of a field's occurrence while its message is read.
const BITS_OF_OCCURRENCE: u64 = 512;

/// The occurrences of each field of a message.
type Occurrences<'a> = BTreeMap<u32, Vec<(Wire, &'a [u8])>>;

/// Appends the JSON of a message.
pub fn write(kind: &MessageDescriptor, input: &[u8], out: &mut Vec<u8>, budget: &Budget) -> Result<(), Fault> {
    Writer { budget }.message(kind, input, out, 0)
}

struct Writer<'a> {
    budget: &'a Budget,
}

impl Writer<'_> {
    fn message(&self, kind: &MessageDescriptor, input: &[u8], out: &mut Vec<u8>, nesting: usize) -> Result<(), Fault> {
        if nesting > MAX_NESTING {
            return Err(Fault::new(format!("messages are nested more than {MAX_NESTING} deep")));
        }
        if let Some(numbers) = instant_of(kind) {
            let micros = numbers.micros(0, input)?;
            if numbers.is_duration {
                let (sign, micros) = (if micros < 0 { "-" } else { "" }, micros.unsigned_abs());
                let _ = write!(out, "\"{sign}{}.{:06}s\"", micros / 1_000_000, micros % 1_000_000);
            } else {
                texts::timestamp(micros, true, out);
            }
            return Ok(());
        }
        let found = self.occurrences(kind, input)?;
        let mut set = kind.fields().filter_map(|field| Some((found.get(&field.number())?, field)));
        match kind.full_name() {
            name if is_json(kind) => match (set.next(), name) {
                (Some((occurrences, field)), _) if field.name() != "null_value" => {
                    self.field(&field, occurrences, out, nesting)?;
                }
                (_, "google.protobuf.Struct") => out.extend_from_slice(b"{}"),
                (_, "google.protobuf.ListValue") => out.extend_from_slice(b"[]"),
                _ => out.extend_from_slice(b"null"),
            },
            _ => {
                let start = out.len();
                for (occurrences, field) in set {
                    out.push(if out.len() == start { b'{' } else { b',' });
                    texts::string(field.name().as_bytes(), out);
                    out.push(b':');
                    let done = self.field(&field, occurrences, out, nesting);
                    done.map_err(|fault| fault.within(&field.name().into()))?;
                }
                out.extend_from_slice(if out.len() == start { b"{}" } else { b"}" });
            }
        }
        Ok(())
    }

    /// Returns a message's fields, if their encoding fits their type; of a oneof, only the member that is set last.
    fn occurrences<'b>(&self, kind: &MessageDescriptor, mut input: &'b [u8]) -> Result<Occurrences<'b>, Fault> {
        let (mut found, mut count) = (Occurrences::new(), 0);
        while !input.is_empty() {
            let (number, wire) = tag(&mut input)?;
            let start = input;
            skip(number, wire, &mut input)?;
            let bytes = start.get(..start.len() - input.len()).unwrap_or_default();
            let Some(field) = kind.get_field(number) else { continue };
            let own = wire_of(&field);
            if own.wire() != wire && !(field.is_list() && own.is_packable() && wire == Wire::Prefixed) {
                continue;
            }
            for other in field.containing_oneof().iter().flat_map(|oneof| oneof.fields()) {
                if other.number() != number {
                    found.remove(&other.number());
                }
            }
            count += 1;
            self.budget.check(BITS_OF_OCCURRENCE, count)?;
            found.entry(number).or_default().push((wire, bytes));
        }
        Ok(found)
    }

    fn field(
        &self,
        field: &FieldDescriptor,
        occurrences: &[(Wire, &[u8])],
        out: &mut Vec<u8>,
        nesting: usize,
    ) -> Result<(), Fault> {
        if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
            return self.map(&entry, occurrences, out, nesting);
        }
        if !field.is_list() {
            return self.value(field, occurrences, out, nesting);
        }
        let (packable, mut next) = (wire_of(field).is_packable(), b'[');
        for occurrence in occurrences {
            let (wire, mut items) = *occurrence;
            if packable && wire == Wire::Prefixed {
                items = prefixed(&mut items)?;
            }
            while !items.is_empty() {
                out.push(std::mem::replace(&mut next, b','));
                if packable {
                    self.scalar(field, &mut items, out)?;
                } else {
                    self.value(field, &[(wire, std::mem::take(&mut items))], out, nesting)?;
                }
            }
        }
        out.extend_from_slice(if next == b'[' { b"[]" } else { b"]" });
        Ok(())
    }

    /// Appends a map; if several entries have the same key, the last counts.
    fn map(
        &self,
        entry: &MessageDescriptor,
        occurrences: &[(Wire, &[u8])],
        out: &mut Vec<u8>,
        nesting: usize,
    ) -> Result<(), Fault> {
        let (key_field, value_field) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        let (mut entries, mut size) = (BTreeMap::new(), 0);
        for &(_, mut bytes) in occurrences {
            let parts = self.occurrences(entry, prefixed(&mut bytes)?)?;
            let part = |field: &FieldDescriptor, text: &mut Vec<u8>| {
                self.value(field, parts.get(&field.number()).map_or(&[], Vec::as_slice), text, nesting)
            };
            let (mut key, mut value) = (vec![], vec![]);
            part(&key_field, &mut key)?;
            part(&value_field, &mut value)?;
            size += key.len() + value.len();
            self.budget.check(8, size)?;
            entries.insert(key, value);
        }
        let mut next = b'{';
        for (key, value) in entries {
            out.push(std::mem::replace(&mut next, b','));
            if key.first() == Some(&b'"') {
                out.extend_from_slice(&key);
            } else {
                texts::string(&key, out);
            }
            out.push(b':');
            out.extend_from_slice(&value);
        }
        out.extend_from_slice(if next == b'{' { b"{}" } else { b"}" });
        Ok(())
    }

    /// Appends the value of a field that is not repeated: the last value, all pieces of a message, or the default.
    fn value(
        &self,
        field: &FieldDescriptor,
        occurrences: &[(Wire, &[u8])],
        out: &mut Vec<u8>,
        nesting: usize,
    ) -> Result<(), Fault> {
        if let Kind::Message(kind) = field.kind() {
            let mut pieces = vec![];
            for &(wire, mut bytes) in occurrences {
                if wire == Wire::Group {
                    let mut end = vec![];
                    put_tag(&mut end, field.number(), Wire::GroupEnd);
                    pieces.push(bytes.get(..bytes.len().saturating_sub(end.len())).unwrap_or_default());
                } else {
                    pieces.push(prefixed(&mut bytes)?);
                }
            }
            let whole: Cow<'_, [u8]> = if let [one] = *pieces { one.into() } else { pieces.concat().into() };
            return self.message(&kind, &whole, out, nesting + 1);
        }
        // Eight zero bytes, the size of the widest number, are the default of each type.
        let (_, mut bytes) = occurrences.last().copied().unwrap_or((wire_of(field).wire(), &[0; 8]));
        self.scalar(field, &mut bytes, out)
    }

    fn scalar(&self, field: &FieldDescriptor, input: &mut &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        self.budget.check(8, out.len())?;
        let zigzag = |raw: u64| (raw >> 1) as i64 ^ -((raw & 1) as i64);
        match field.kind() {
            Kind::Int32 => texts::whole((varint(input)? as i32).into(), out),
            Kind::Int64 => texts::whole(varint(input)? as i64, out),
            Kind::Uint32 => texts::whole((varint(input)? as u32).into(), out),
            Kind::Uint64 => unsigned(varint(input)?, out),
            Kind::Sint32 => texts::whole(zigzag((varint(input)? as u32).into()), out),
            Kind::Sint64 => texts::whole(zigzag(varint(input)?), out),
            Kind::Fixed32 => texts::whole(u32::from_le_bytes(array(input)?).into(), out),
            Kind::Fixed64 => unsigned(u64::from_le_bytes(array(input)?), out),
            Kind::Sfixed32 => texts::whole(i32::from_le_bytes(array(input)?).into(), out),
            Kind::Sfixed64 => texts::whole(i64::from_le_bytes(array(input)?), out),
            Kind::Float => texts::single(f32::from_le_bytes(array(input)?), out),
            Kind::Double => texts::double(f64::from_le_bytes(array(input)?), out),
            Kind::Bool => out.extend_from_slice(if varint(input)? == 0 { b"false" } else { b"true" }),
            Kind::String => {
                let text = prefixed(input)?;
                std::str::from_utf8(text).map_err(|_| "the string is not UTF-8")?;
                texts::string(text, out);
            }
            Kind::Bytes => texts::base64(prefixed(input)?, out),
            Kind::Enum(symbols) => {
                let number = varint(input)? as i32;
                match symbol_of(&symbols, number) {
                    Some(symbol) => texts::string(symbol.as_bytes(), out),
                    None => texts::whole(number.into(), out),
                }
            }
            // A map has no single encoding.
            Kind::Message(_) => {}
        }
        Ok(())
    }
}

fn unsigned(value: u64, out: &mut Vec<u8>) {
    let _ = write!(out, "{value}");
}
