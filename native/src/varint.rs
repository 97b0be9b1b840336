//! Zigzag varints, as in Kafka's `ByteUtils`.

/// The result of parsing, or the reason why it failed; the caller adds the place.
pub type Parsed<T> = Result<T, &'static str>;

const ENDS_EARLY: &str = "a record is truncated in the middle of a field";

/// Reads a 32-bit varint of at most five bytes.
#[inline(always)]
pub fn varint(rest: &mut &[u8]) -> Parsed<i32> {
    match **rest {
        [a, ref tail @ ..] if a < 0x80 => {
            *rest = tail;
            Ok(zigzag32(u32::from(a)))
        }
        [a, b, ref tail @ ..] if b < 0x80 => {
            *rest = tail;
            Ok(zigzag32(u32::from(a & 0x7f) | u32::from(b) << 7))
        }
        _ => {
            let raw = unsigned::<5>(rest)?;
            u32::try_from(raw).map(zigzag32).map_err(|_| "a varint is longer than 32 bits")
        }
    }
}

/// Reads a 64-bit varint of at most ten bytes.
#[inline(always)]
pub fn varlong(rest: &mut &[u8]) -> Parsed<i64> {
    match **rest {
        [a, ref tail @ ..] if a < 0x80 => {
            *rest = tail;
            Ok(zigzag64(u64::from(a)))
        }
        [a, b, ref tail @ ..] if b < 0x80 => {
            *rest = tail;
            Ok(zigzag64(u64::from(a & 0x7f) | u64::from(b) << 7))
        }
        _ => unsigned::<10>(rest).map(zigzag64),
    }
}

/// Removes `len` bytes from the start of `rest` and returns them.
#[inline(always)]
pub fn take<'a>(rest: &mut &'a [u8], len: usize) -> Parsed<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(len).ok_or(ENDS_EARLY)?;
    *rest = tail;
    Ok(head)
}

/// Removes `N` bytes.
#[inline(always)]
pub fn array<const N: usize>(rest: &mut &[u8]) -> Parsed<[u8; N]> {
    let (head, tail) = rest.split_first_chunk().ok_or("the record ends in the middle of a field")?;
    *rest = tail;
    Ok(*head)
}

/// Reads an unsigned varint of at most `MOST` bytes, in one word if there are eight bytes and the varint ends in them.
#[inline(always)]
pub fn unsigned<const MOST: usize>(rest: &mut &[u8]) -> Parsed<u64> {
    let word = rest.first_chunk().map_or(u64::MAX, |word| u64::from_le_bytes(*word));
    let last_bit = (!word & 0x8080_8080_8080_8080).trailing_zeros();
    let len = last_bit as usize / 8 + 1;
    match rest.split_at_checked(len) {
        Some((_, tail)) if len <= MOST.min(8) => {
            *rest = tail;
            // Close the gaps between the groups of 7, then 14, then 28 bits.
            let word = word & (u64::MAX >> (63 - last_bit));
            let word = (word & 0x007f_007f_007f_007f) | (word & 0x7f00_7f00_7f00_7f00) >> 1;
            let word = (word & 0x0000_3fff_0000_3fff) | (word & 0x3fff_0000_3fff_0000) >> 2;
            Ok((word & 0x0fff_ffff) | (word & 0x0fff_ffff_0000_0000) >> 4)
        }
        _ => byte_by_byte(rest, MOST),
    }
}

#[cold]
fn byte_by_byte(rest: &mut &[u8], most: usize) -> Parsed<u64> {
    let mut value = 0u64;
    for (i, &byte) in rest.iter().enumerate().take(most) {
        if i == 9 && byte > 1 {
            return Err("a varint is longer than 64 bits");
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *rest = rest.get(i + 1..).unwrap_or_default();
            return Ok(value);
        }
    }
    Err(if rest.len() < most { ENDS_EARLY } else { "a varint is longer than its type allows" })
}

/// Appends a varint or a varlong, which differ only in range.
#[inline(always)]
pub fn put(out: &mut Vec<u8>, value: i64) {
    let mut raw = raw(value);
    if raw < 0x80 {
        out.push(raw as u8);
    } else if raw < 0x4000 {
        out.extend_from_slice(&[raw as u8 | 0x80, (raw >> 7) as u8]);
    } else {
        while raw >= 0x80 {
            out.push(raw as u8 | 0x80);
            raw >>= 7;
        }
        out.push(raw as u8);
    }
}

/// Returns the number of bytes that [`put`] appends.
#[inline(always)]
pub fn len(value: i64) -> usize {
    // Seven bits per byte, rounded up; 0 needs one byte.
    ((70 - (raw(value) | 1).leading_zeros()) / 7) as usize
}

fn raw(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn zigzag32(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

fn zigzag64(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_round_trips() {
        for shift in 0..63 {
            for value in [1i64 << shift, (1 << shift) - 1, -(1 << shift), i64::MAX >> shift, i64::MIN >> shift] {
                let mut bytes = vec![];
                put(&mut bytes, value);
                assert_eq!(len(value), bytes.len());
                // The bytes after a varint decide how it is read, but do not change the result.
                for following in 0..9 {
                    let bytes = [&bytes[..], &vec![0xff; following]].concat();
                    let mut rest = &bytes[..];
                    assert_eq!((varlong(&mut rest), rest.len()), (Ok(value), following));
                    let mut rest = &bytes[..];
                    assert_eq!(varint(&mut rest).ok(), i32::try_from(value).ok());
                }
                if let Ok(small) = i32::try_from(value) {
                    let mut rest = &bytes[..];
                    assert_eq!(varint(&mut rest), Ok(small));
                } else {
                    assert!(varint(&mut &bytes[..]).is_err());
                }
            }
        }
    }

    #[test]
    fn what_does_not_end_is_refused() {
        for len in 0..12 {
            let bytes = vec![0xffu8; len];
            let reason = if len < 5 { ENDS_EARLY } else { "a varint is longer than its type allows" };
            assert_eq!(varint(&mut &bytes[..]), Err(reason), "{len}");
            let reason = if len < 10 { ENDS_EARLY } else { "a varint is longer than 64 bits" };
            assert_eq!(varlong(&mut &bytes[..]), Err(reason), "{len}");
        }
        assert!(varlong(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02][..]).is_err());
    }

    #[test]
    fn take_stops_at_the_end() {
        let mut rest = &b"abc"[..];
        assert_eq!(take(&mut rest, 2), Ok(&b"ab"[..]));
        assert!(take(&mut rest, 2).is_err());
        assert_eq!(rest, b"c");
    }
}
