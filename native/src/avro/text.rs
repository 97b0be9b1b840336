//! A value as JSON, for a record that contains itself.

use super::input;
use super::schema::{Id, Kind, Logical, Schema, Unit};
use crate::json::texts;
use crate::values::budget::Budget;
use crate::values::column::Data;
use crate::values::fault::{ENTRY, Fault, ITEM};
use crate::varint::{array, take, varint, varlong};

/// The limit on nested records, arrays and maps, because each level takes a part of the stack.
const MAX_NESTING: usize = 250;

/// Removes a value of a type from the start of `input`, and appends its JSON: bytes in Base64, times in ISO 8601. Names
/// are those of the writer schema.
pub fn write(schema: &Schema, id: Id, input: &mut &[u8], out: &mut Vec<u8>, budget: &Budget) -> Result<(), Fault> {
    Writer { schema, budget }.value(id, input, out, 0)
}

struct Writer<'a> {
    schema: &'a Schema,
    budget: &'a Budget,
}

impl Writer<'_> {
    fn value(&self, mut id: Id, input: &mut &[u8], out: &mut Vec<u8>, nesting: usize) -> Result<(), Fault> {
        self.budget.check(8, out.len())?;
        if nesting > MAX_NESTING {
            return Err(Fault::new(format!("records, arrays and maps are nested more than {MAX_NESTING} deep")));
        }
        while let Kind::Union(branches) = self.schema.kind(id) {
            id = *input::choose(branches, input)?;
        }
        match self.schema.kind(id) {
            Kind::Null | Kind::Union(_) => out.extend_from_slice(b"null"),
            Kind::Boolean => match array(input)? {
                [byte @ (0 | 1)] => out.extend_from_slice(if byte == 1 { b"true" } else { b"false" }),
                _ => return Err("the boolean is neither 0 nor 1".into()),
            },
            Kind::Int => self.whole(id, varint(input)?.into(), out),
            Kind::Long => self.whole(id, varlong(input)?, out),
            Kind::Float => texts::single(f32::from_le_bytes(array(input)?), out),
            Kind::Double => texts::double(f64::from_le_bytes(array(input)?), out),
            Kind::Bytes => self.bytes(id, input::prefixed(input)?, out)?,
            Kind::Fixed(size) => self.bytes(id, take(input, *size)?, out)?,
            Kind::String => text(input::prefixed(input)?, out)?,
            Kind::Enum { symbols, .. } => {
                let symbol = usize::try_from(varint(input)?).ok().and_then(|i| symbols.get(i));
                texts::string(symbol.ok_or("the enum has no symbol with this number")?.as_bytes(), out);
            }
            &Kind::Array(item) => self.items(item, [b'[', b']'], input, out, nesting + 1)?,
            &Kind::Map(value) => self.items(value, [b'{', b'}'], input, out, nesting + 1)?,
            Kind::Record(fields) => {
                for (i, field) in fields.iter().enumerate() {
                    out.push(if i == 0 { b'{' } else { b',' });
                    texts::string(field.name.as_bytes(), out);
                    out.push(b':');
                    let done = self.value(field.kind, input, out, nesting + 1);
                    done.map_err(|fault| fault.within(&field.name))?;
                }
                out.extend_from_slice(if fields.is_empty() { b"{}" } else { b"}" });
            }
        }
        Ok(())
    }

    fn items(
        &self,
        item: Id,
        [open, close]: [u8; 2],
        input: &mut &[u8],
        out: &mut Vec<u8>,
        nesting: usize,
    ) -> Result<(), Fault> {
        let (mut is_first, is_map) = (true, open == b'{');
        out.push(open);
        loop {
            let (count, _) = input::block(input)?;
            self.budget.check(8, count)?;
            for _ in 0..count {
                if !std::mem::take(&mut is_first) {
                    out.push(b',');
                }
                if is_map {
                    text(input::prefixed(input)?, out)?;
                    out.push(b':');
                }
                let done = self.value(item, input, out, nesting);
                done.map_err(|fault| fault.within(if is_map { &ENTRY } else { &ITEM }))?;
            }
            if count == 0 {
                out.push(close);
                return Ok(());
            }
        }
    }

    fn whole(&self, id: Id, value: i64, out: &mut Vec<u8>) {
        match self.schema.get(id).logical {
            Some(Logical::Date) => texts::date(value, out),
            Some(Logical::Timestamp { unit: unit @ (Unit::Millis | Unit::Micros), utc }) => {
                match value.checked_mul(unit.nanos() / 1000) {
                    Some(micros) => texts::timestamp(micros, utc, out),
                    None => texts::whole(value, out),
                }
            }
            _ => texts::whole(value, out),
        }
    }

    fn bytes(&self, id: Id, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        match self.schema.get(id).logical {
            Some(Logical::Decimal { scale, .. }) => {
                let mut values = vec![];
                Data::push_decimal(i128::MAX, &mut values, bytes, 0)?;
                let scale = i8::try_from(scale).map_err(|_| "the decimal has too many digits")?;
                values.iter().for_each(|&value| texts::decimal(value, scale, out));
            }
            _ => texts::base64(bytes, out),
        }
        Ok(())
    }
}

fn text(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    std::str::from_utf8(bytes).map_err(|_| "the string is not UTF-8")?;
    texts::string(bytes, out);
    Ok(())
}
