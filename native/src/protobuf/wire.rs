//! The parts of Protobuf's wire format. Each function removes a part from the start of the input.

use crate::values::fault::Fault;
use crate::varint::{Parsed, array, take, unsigned};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Varint,
    Fixed64,
    Prefixed,
    Group,
    GroupEnd,
    Fixed32,
}

/// The limit on nested groups in a skipped value, because each level takes stack memory.
const MAX_GROUPS: usize = 100;

const NO_TAG: &str = "the record has a byte where a field of a message should begin";

#[inline(always)]
pub fn varint(input: &mut &[u8]) -> Parsed<u64> {
    match **input {
        [byte, ref tail @ ..] if byte < 0x80 => {
            *input = tail;
            Ok(u64::from(byte))
        }
        _ => unsigned::<10>(input),
    }
}

#[inline(always)]
pub fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the number and the wire type of a field.
pub fn put_tag(out: &mut Vec<u8>, number: u32, wire: Wire) {
    let kind = match wire {
        Wire::Varint => 0,
        Wire::Fixed64 => 1,
        Wire::Prefixed => 2,
        Wire::Group => 3,
        Wire::GroupEnd => 4,
        Wire::Fixed32 => 5,
    };
    put_unsigned(out, u64::from(number) << 3 | kind);
}

/// Removes the number and the wire type of a field.
#[inline(always)]
pub fn tag(input: &mut &[u8]) -> Parsed<(u32, Wire)> {
    let raw = u32::try_from(varint(input)?).map_err(|_| NO_TAG)?;
    let wire = match raw & 7 {
        0 => Wire::Varint,
        1 => Wire::Fixed64,
        2 => Wire::Prefixed,
        3 => Wire::Group,
        4 => Wire::GroupEnd,
        5 => Wire::Fixed32,
        _ => return Err(NO_TAG),
    };
    if raw < 8 { Err(NO_TAG) } else { Ok((raw >> 3, wire)) }
}

/// Removes a length.
#[inline(always)]
pub fn length(input: &mut &[u8]) -> Parsed<usize> {
    Ok(varint(input)? as usize)
}

/// Removes a length and that many bytes, and returns the bytes.
#[inline(always)]
pub fn prefixed<'a>(input: &mut &'a [u8]) -> Parsed<&'a [u8]> {
    let len = length(input)?;
    take(input, len)
}

/// Removes a value that has no column; its tag is removed already.
pub fn skip(number: u32, wire: Wire, input: &mut &[u8]) -> Result<(), Fault> {
    skip_nested(number, wire, input, 0)
}

fn skip_nested(number: u32, wire: Wire, input: &mut &[u8], depth: usize) -> Result<(), Fault> {
    match wire {
        Wire::Varint => {
            varint(input)?;
        }
        Wire::Fixed64 => {
            array::<8>(input)?;
        }
        Wire::Fixed32 => {
            array::<4>(input)?;
        }
        Wire::Prefixed => {
            prefixed(input)?;
        }
        Wire::Group => {
            if depth >= MAX_GROUPS {
                return Err(Fault::new(format!("groups are nested more than {MAX_GROUPS} deep")));
            }
            loop {
                match tag(input)? {
                    (end, Wire::GroupEnd) if end == number => break,
                    (inner, wire) => skip_nested(inner, wire, input, depth + 1)?,
                }
            }
        }
        Wire::GroupEnd => return Err("a group ends, but has not begun".into()),
    }
    Ok(())
}
