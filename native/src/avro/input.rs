//! The parts of Avro's binary encoding. Each function removes a part from the start of the input.

use crate::varint::{Parsed, take, varlong};

/// Removes a length.
#[inline(always)]
pub fn length(input: &mut &[u8]) -> Parsed<usize> {
    usize::try_from(varlong(input)?).map_err(|_| "a length is negative")
}

/// Removes a length and that many bytes, and returns the bytes.
#[inline(always)]
pub fn prefixed<'a>(input: &mut &'a [u8]) -> Parsed<&'a [u8]> {
    let len = length(input)?;
    take(input, len)
}

/// Removes the header of an array's or map's block; returns the number of items, and the block's size if it is given.
pub fn block(input: &mut &[u8]) -> Parsed<(usize, Option<usize>)> {
    const WRONG: &str = "the size of a block of an array or map is negative";
    let count = varlong(input)?;
    if count >= 0 {
        return Ok((count as usize, None));
    }
    let size = usize::try_from(varlong(input)?).map_err(|_| WRONG)?;
    let count = count.checked_neg().and_then(|count| usize::try_from(count).ok()).ok_or(WRONG)?;
    Ok((count, Some(size)))
}

/// Removes the number of a union's branch and returns the branch.
#[inline(always)]
pub fn choose<'a, T>(branches: &'a [T], input: &mut &[u8]) -> Parsed<&'a T> {
    let i = varlong(input)?;
    usize::try_from(i).ok().and_then(|i| branches.get(i)).ok_or("the union has no branch with this number")
}
