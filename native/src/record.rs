//! One record of a RecordBatch v2 (Kafka's `DefaultRecord`), borrowed from the batch's bytes.

use crate::varint::{Parsed, take, varint, varlong};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// The headers of a record, checked while the record was parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    pub count: usize,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// Takes one record from the front of `rest`. All of its fields are checked, wanted or not.
    #[inline(always)]
    pub fn parse(rest: &mut &'a [u8]) -> Parsed<Self> {
        let length = usize::try_from(varint(rest)?).map_err(|_| "a record claims a negative length")?;
        let mut body = take(rest, length)?;
        take(&mut body, 1)?; // Attributes: none is defined for records.
        let timestamp_delta = varlong(&mut body)?;
        let offset_delta = varint(&mut body)?;
        let key = nullable(&mut body)?;
        let value = nullable(&mut body)?;
        let count = usize::try_from(varint(&mut body)?).map_err(|_| "a record claims a negative number of headers")?;
        if count > 0 {
            check_headers(body, count)?;
        } else if !body.is_empty() {
            return Err("a record is longer than its fields");
        }
        Ok(Self { timestamp_delta, offset_delta, key, value, headers: Headers { count, bytes: body } })
    }
}

impl<'a> Headers<'a> {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the headers as they are stored.
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

/// A negative length is null, as for Kafka's own reader.
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
