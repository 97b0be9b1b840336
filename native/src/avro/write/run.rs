//! Writes the rows of an array, as the plan says.

use std::collections::HashMap;
use std::sync::Arc;

use super::fit::{Form, Null, Slot, Source};
use crate::arrays::{Outside, Validity};
use crate::values::cells::{Cells, Lists, Texts, Whole};
use crate::values::encode::{Stop, WriteRow, utf8};
use crate::values::fault::Fault;
use crate::varint::put;

/// A column and its plan.
#[derive(Debug)]
pub struct Writer<'a> {
    validity: Validity<'a>,
    first: usize,
    branch: Option<i64>,
    null: &'a Null,
    op: Op<'a>,
}

#[derive(Debug)]
enum Op<'a> {
    Null,
    Boolean(&'a [u8]),
    Whole(Whole<'a>),
    Millis(Whole<'a>),
    Float(&'a [[u8; 4]]),
    FloatAsDouble(&'a [[u8; 4]]),
    Double(&'a [[u8; 8]]),
    Decimal { values: &'a [[u8; 16]], precision: u8, size: Option<usize> },
    Bytes(Texts<'a>),
    Text(Texts<'a>),
    Fixed(Texts<'a>, usize),
    Enum(Texts<'a>, &'a HashMap<Box<[u8]>, i64>),
    Array(Lists<'a>, Box<Writer<'a>>),
    Map { lists: Lists<'a>, validity: Validity<'a>, first: usize, keys: Texts<'a>, values: Box<Writer<'a>> },
    Record(Vec<Step<'a>>),
    Members(Vec<(i64, Writer<'a>)>),
}

#[derive(Debug)]
enum Step<'a> {
    Part(&'a Arc<str>, Writer<'a>),
    Bytes(&'a [u8]),
}

impl<'a> Writer<'a> {
    /// Makes a writer of an array that has the type of `slot`. `rows`: the array's number of rows, if known.
    pub fn new(cells: &'a Cells<'a>, slot: &'a Slot, rows: Option<usize>) -> Result<Self, Stop> {
        let values = cells.values;
        let child = |i: usize| cells.children.get(i).ok_or(Stop::Outside);
        let op = match &slot.form {
            Form::Null => Op::Null,
            Form::Boolean => Op::Boolean(values),
            Form::Whole => Op::Whole(cells.whole()),
            Form::Millis => Op::Millis(cells.whole()),
            Form::Float => Op::Float(values.as_chunks().0),
            Form::FloatAsDouble => Op::FloatAsDouble(values.as_chunks().0),
            Form::Double => Op::Double(values.as_chunks().0),
            &Form::Decimal { precision, size } => Op::Decimal { values: values.as_chunks().0, precision, size },
            Form::Bytes => Op::Bytes(cells.texts()),
            // If the whole column is ASCII, no text needs a check of its UTF-8.
            Form::Text if rows.is_some_and(|rows| cells.texts().are_ascii(cells.first, rows)) => {
                Op::Bytes(cells.texts())
            }
            Form::Text => Op::Text(cells.texts()),
            Form::Fixed(size) => Op::Fixed(cells.texts(), *size),
            Form::Enum(symbols) => Op::Enum(cells.texts(), symbols),
            Form::Array(item) => Op::Array(cells.lists(), Box::new(Self::new(child(0)?, item, None)?)),
            Form::Map(value) => {
                let [keys, values] = child(0)?.children.as_slice() else { return Err(Stop::Outside) };
                Op::Map {
                    lists: cells.lists(),
                    validity: keys.validity,
                    first: keys.first,
                    keys: keys.texts(),
                    values: Box::new(Self::new(values, value, None)?),
                }
            }
            Form::Record(steps) => {
                let mut bound = vec![];
                for step in steps {
                    bound.push(match &step.source {
                        Source::Part(i, slot) => Step::Part(&step.name, Self::new(child(*i)?, slot, rows)?),
                        Source::Bytes(bytes) => Step::Bytes(bytes),
                    });
                }
                Op::Record(bound)
            }
            Form::Members(members) => {
                let members = members.iter().zip(&cells.children);
                let members = members.map(|((branch, slot), part)| Ok((*branch, Self::new(part, slot, rows)?)));
                Op::Members(members.collect::<Result<_, Stop>>()?)
            }
        };
        Ok(Self { validity: cells.validity, first: cells.first, branch: slot.branch, null: &slot.null, op })
    }
}

impl WriteRow for Writer<'_> {
    fn is_null(&self, row: usize) -> Result<bool, Outside> {
        // A column of nulls has no validity.
        Ok(matches!(self.op, Op::Null) || !self.validity.is_set(self.first + row)?)
    }

    /// Appends the value of a row, or the null of the schema's type.
    #[inline]
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
        let at = self.first + row;
        if !self.validity.is_set(at)? {
            return self.write_null(out);
        }
        if let Some(branch) = self.branch {
            put(out, branch);
        }
        match &self.op {
            Op::Null => {}
            Op::Boolean(bits) => out.push(bits.get(at / 8).ok_or(Outside)? >> (at % 8) & 1),
            Op::Whole(values) => put(out, values.get(at)?),
            Op::Millis(values) => match values.get(at)? {
                micros if micros % 1000 == 0 => put(out, micros / 1000),
                _ => {
                    let reason = "the time has microseconds, but the schema has milliseconds: use date_trunc";
                    return Err(Fault::new(reason).into());
                }
            },
            Op::Float(values) => out.extend_from_slice(values.get(at).ok_or(Outside)?),
            Op::Double(values) => out.extend_from_slice(values.get(at).ok_or(Outside)?),
            Op::FloatAsDouble(values) => {
                let value = f32::from_le_bytes(*values.get(at).ok_or(Outside)?);
                out.extend_from_slice(&f64::from(value).to_le_bytes());
            }
            Op::Decimal { values, precision, size } => {
                decimal(i128::from_le_bytes(*values.get(at).ok_or(Outside)?), *precision, *size, out)?;
            }
            Op::Bytes(values) => prefixed(values.get(at)?, out),
            Op::Text(values) => prefixed(utf8(values.get(at)?)?, out),
            Op::Fixed(values, size) => {
                let value = values.get(at)?;
                if value.len() != *size {
                    let reason = format!("the value has {} bytes, but the schema's fixed type has {size}", value.len());
                    return Err(Fault::new(reason).into());
                }
                out.extend_from_slice(value);
            }
            Op::Enum(values, symbols) => match symbols.get(values.get(at)?) {
                Some(&number) => put(out, number),
                None => return Err(Fault::new("the string is none of the symbols of the schema's enum").into()),
            },
            Op::Array(lists, items) => {
                let (start, end) = lists.get(at)?;
                block(start, end, out, |item, out| items.write(item, out).map_err(|stop| stop.within(&"[]".into())))?;
            }
            Op::Map { lists, validity, first, keys, values } => {
                let (start, end) = lists.get(at)?;
                block(start, end, out, |entry, out| {
                    if !validity.is_set(first + entry)? {
                        return Err(Fault::new("a key of the map is null").into());
                    }
                    prefixed(utf8(keys.get(first + entry)?)?, out);
                    values.write(entry, out).map_err(|stop| stop.within(&"{}".into()))
                })?;
            }
            Op::Record(steps) => {
                for step in steps {
                    match step {
                        Step::Part(name, part) => part.write(row, out).map_err(|stop| stop.within(name))?,
                        Step::Bytes(bytes) => out.extend_from_slice(bytes),
                    }
                }
            }
            Op::Members(members) => self.write_member(members, row, out)?,
        }
        Ok(())
    }
}

impl<'a> Writer<'a> {
    fn write_null(&self, out: &mut Vec<u8>) -> Result<(), Stop> {
        match *self.null {
            Null::Nothing => {}
            Null::Branch(branch) => put(out, branch),
            Null::Refused => return Err(Fault::new("the value is null, and the schema's type is not nullable").into()),
        }
        Ok(())
    }

    /// Appends the branch whose part is set, or null if no part is set.
    fn write_member(&self, members: &[(i64, Writer<'a>)], row: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
        let mut chosen = None;
        for (i, (branch, member)) in members.iter().enumerate() {
            if member.is_null(row)? {
                continue;
            }
            if chosen.replace((i, *branch, member)).is_some() {
                return Err(Fault::new("several members are set, but a union has one value").into());
            }
        }
        match chosen {
            Some((i, branch, member)) => {
                put(out, branch);
                member.write(row, out).map_err(|stop| stop.within(&format!("member{i}").into()))
            }
            None => self.write_null(out),
        }
    }
}

/// Appends the items of an array or the entries of a map, in one block.
#[inline(always)]
fn block(
    start: usize,
    end: usize,
    out: &mut Vec<u8>,
    mut write: impl FnMut(usize, &mut Vec<u8>) -> Result<(), Stop>,
) -> Result<(), Stop> {
    if start < end {
        put(out, (end - start) as i64);
    }
    for item in start..end {
        write(item, out)?;
    }
    out.push(0);
    Ok(())
}

#[inline(always)]
fn prefixed(bytes: &[u8], out: &mut Vec<u8>) {
    put(out, bytes.len() as i64);
    out.extend_from_slice(bytes);
}

/// Appends the two's complement of a decimal, most significant byte first, in the fewest bytes or in the size of a
/// fixed type.
fn decimal(value: i128, precision: u8, size: Option<usize>, out: &mut Vec<u8>) -> Result<(), Stop> {
    if value.unsigned_abs() >= 10u128.pow(u32::from(precision)) {
        return Err(Fault::new(format!("the decimal has more than the {precision} digits of the schema's type")).into());
    }
    let bytes = value.to_be_bytes();
    let sign = if value < 0 { 0xff } else { 0 };
    let digits = bytes.iter().position(|&byte| byte != sign).unwrap_or(bytes.len() - 1);
    // The first bit must be the sign.
    let starts_with_sign = bytes.get(digits).is_some_and(|&byte| (byte ^ sign) & 0x80 == 0);
    let needed = bytes.get(digits - usize::from(!starts_with_sign)..).unwrap_or(&bytes);
    match size {
        None => prefixed(needed, out),
        Some(size) => {
            let Some(filler) = size.checked_sub(needed.len()) else {
                return Err(
                    Fault::new(format!("the decimal needs more than the {size} bytes of the schema's fixed")).into()
                );
            };
            out.resize(out.len() + filler, sign);
            out.extend_from_slice(needed);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: i128, precision: u8, size: Option<usize>) -> Option<Vec<u8>> {
        let mut out = vec![];
        decimal(value, precision, size, &mut out).ok().map(|()| out)
    }

    #[test]
    fn a_decimal_has_as_few_bytes_as_javas_big_integer() {
        for (value, bytes) in [
            (0, vec![0]),
            (1, vec![1]),
            (-1, vec![0xff]),
            (127, vec![127]),
            (128, vec![0, 128]),
            (-128, vec![0x80]),
            (-129, vec![0xff, 0x7f]),
            (256, vec![1, 0]),
        ] {
            let length = 2 * bytes.len() as u8;
            assert_eq!(written(value, 9, None), Some([vec![length], bytes].concat()), "{value}");
        }
        let most = 10i128.pow(38) - 1;
        assert_eq!(written(most, 38, None).map(|bytes| bytes.len()), Some(17));
        assert_eq!(written(-most, 38, Some(16)), Some((-most).to_be_bytes().to_vec()));
        assert_eq!(written(-2, 4, Some(20)).map(|bytes| (bytes.len(), bytes.first().copied())), Some((20, Some(0xff))));
    }

    #[test]
    fn a_decimal_that_is_too_large_is_refused() {
        assert_eq!((written(999, 3, None).is_some(), written(1000, 3, None)), (true, None));
        assert_eq!(written(-1000, 3, None), None);
        assert_eq!(written(i128::MIN, 38, None), None);
        assert_eq!(written(128, 3, Some(1)), None);
    }
}
