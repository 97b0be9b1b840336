//! One record of a RecordBatch v2 (Kafka's `DefaultRecord`), parsed from a batch's bytes or written to them.

use crate::varint::{self, Parsed, take, varint, varlong};

/// The length of the longest varint of 32 bits.
const MOST_LENGTH: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// The headers of a record in their encoded form, which was checked when the record was parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    pub count: usize,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// Parses one record and removes it from the start of `rest`. All fields are checked, also unused ones.
    #[inline(always)]
    pub fn parse(rest: &mut &'a [u8]) -> Parsed<Self> {
        let length = usize::try_from(varint(rest)?).map_err(|_| "a record declares a negative length")?;
        let mut body = take(rest, length)?;
        take(&mut body, 1)?; // The attributes; Kafka defines none for records.
        let timestamp_delta = varlong(&mut body)?;
        let offset_delta = varint(&mut body)?;
        let key = nullable(&mut body)?;
        let value = nullable(&mut body)?;
        let count =
            usize::try_from(varint(&mut body)?).map_err(|_| "a record declares a negative number of headers")?;
        if count > 0 {
            check_headers(body, count)?;
        } else if !body.is_empty() {
            return Err("a record is longer than its fields");
        }
        Ok(Self { timestamp_delta, offset_delta, key, value, headers: Headers { count, bytes: body } })
    }

    /// Returns the number of bytes that [`Record::write`] appends.
    #[inline(always)]
    pub fn size(&self) -> usize {
        let body = self.body_len();
        varint::len(body as i64) + body
    }

    /// Appends the encoded record. The caller must have limited [`Record::size`], so that all lengths fit into 31 bits.
    #[inline(always)]
    pub fn write(&self, out: &mut Vec<u8>) {
        let body = self.body_len();
        out.reserve(body + MOST_LENGTH);
        varint::put(out, body as i64);
        out.push(0); // The attributes.
        varint::put(out, self.timestamp_delta);
        varint::put(out, i64::from(self.offset_delta));
        put_nullable(out, self.key);
        put_nullable(out, self.value);
        varint::put(out, self.headers.count as i64);
        out.extend_from_slice(self.headers.bytes);
    }

    #[inline(always)]
    fn body_len(&self) -> usize {
        1 + varint::len(self.timestamp_delta)
            + varint::len(i64::from(self.offset_delta))
            + nullable_len(self.key)
            + nullable_len(self.value)
            + varint::len(self.headers.count as i64)
            + self.headers.bytes.len()
    }
}

impl<'a> Headers<'a> {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the length of the encoded headers in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            header(&mut rest).ok()
        })
    }
}

/// Encodes the headers of a record.
#[derive(Debug, Default)]
pub struct HeaderWriter {
    count: usize,
    bytes: Vec<u8>,
}

impl HeaderWriter {
    pub fn clear(&mut self) {
        self.count = 0;
        self.bytes.clear();
    }

    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        put_nullable(&mut self.bytes, Some(key));
        put_nullable(&mut self.bytes, value);
        self.count += 1;
    }

    pub fn headers(&self) -> Headers<'_> {
        Headers { count: self.count, bytes: &self.bytes }
    }
}

#[inline(always)]
fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            varint::put(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
        None => varint::put(out, -1),
    }
}

#[inline(always)]
fn nullable_len(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varint::len(bytes.len() as i64) + bytes.len())
}

/// Parses a nullable field. A negative length means null, as in Kafka's own reader.
#[inline(always)]
fn nullable<'a>(rest: &mut &'a [u8]) -> Parsed<Option<&'a [u8]>> {
    match usize::try_from(varint(rest)?) {
        Ok(len) => take(rest, len).map(Some),
        Err(_) => Ok(None),
    }
}

fn header<'a>(rest: &mut &'a [u8]) -> Parsed<(&'a [u8], Option<&'a [u8]>)> {
    let key = nullable(rest)?.ok_or("a header has no key")?;
    Ok((key, nullable(rest)?))
}

fn check_headers(mut rest: &[u8], count: usize) -> Parsed<()> {
    for _ in 0..count {
        header(&mut rest)?;
    }
    if rest.is_empty() { Ok(()) } else { Err("a record is longer than its fields") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_by_hand() {
        // length 14; attributes; timestamp +1; offset +2; key "k"; null value; one header h -> "v", one h -> null
        let bytes = [28, 0, 2, 4, 2, b'k', 1, 4, 2, b'h', 2, b'v', 2, b'h', 1, 99];
        let mut rest = &bytes[..];
        let record = Record::parse(&mut rest).unwrap();
        assert_eq!(rest, [99]);
        assert_eq!((record.timestamp_delta, record.offset_delta), (1, 2));
        assert_eq!((record.key, record.value), (Some(&b"k"[..]), None));
        let headers: Vec<_> = record.headers.iter().collect();
        assert_eq!(headers, [(&b"h"[..], Some(&b"v"[..])), (&b"h"[..], None)]);
    }

    #[test]
    fn what_is_written_is_parsed_again() {
        let long = vec![7; 70_000];
        let mut writer = HeaderWriter::default();
        writer.push(b"", None);
        writer.push(b"h", Some(&long));
        for headers in [Headers::default(), writer.headers()] {
            for (key, value) in [(None, None), (Some(&b""[..]), Some(&b"v"[..])), (Some(&long[..]), Some(&long[..100]))]
            {
                for (timestamp_delta, offset_delta) in [(0, 0), (-1, 64), (1 << 40, 1 << 20), (i64::MIN, i32::MAX)] {
                    let record = Record { timestamp_delta, offset_delta, key, value, headers };
                    let mut bytes = b"before".to_vec();
                    record.write(&mut bytes);
                    assert_eq!(bytes.len(), 6 + record.size());
                    let mut rest = &bytes[6..];
                    assert_eq!(Record::parse(&mut rest), Ok(record));
                    assert!(rest.is_empty());
                }
            }
        }
    }

    #[test]
    fn lengths_that_do_not_add_up_are_refused() {
        for bytes in [
            &[][..],
            &[1][..],                             // negative length
            &[14, 0, 0, 0, 1, 1][..],             // cut
            &[14, 0, 0, 0, 1, 1, 0, 7][..],       // a byte left over
            &[12, 0, 0, 0, 1, 1, 1][..],          // negative number of headers
            &[12, 0, 0, 0, 1, 4, 0][..],          // the value is longer than the record
            &[16, 0, 0, 0, 1, 1, 2, 1, 1][..],    // a header without a key
            &[18, 0, 0, 0, 1, 1, 2, 0, 1, 7][..], // a byte after the headers
        ] {
            assert!(Record::parse(&mut &bytes[..]).is_err(), "{bytes:?}");
        }
    }
}
