//! An Arrow column that grows value by value within a limit of memory, and is truncated before a bad record.

use std::collections::HashMap;
use std::hash::Hash;

use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBufferBuilder};
use arrow_data::ArrayData;
use arrow_data::transform::MutableArrayData;
use arrow_schema::{ArrowError, DataType, Field};

use super::fault::Fault;
use super::slot::{Shape, Slot};
use crate::varint::{Parsed, take};

/// A column of any type. Between two records, all parts of the column have the same number of rows.
#[derive(Debug)]
pub struct Column {
    /// None: no row is null.
    nulls: Option<NullBufferBuilder>,
    data: Data,
}

#[derive(Debug)]
pub enum Data {
    Null(usize),
    Boolean(BooleanBufferBuilder),
    Int(Vec<i32>),
    Long(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Decimal {
        limit: i128,
        values: Vec<i128>,
    },
    Bytes(Bytes),
    List {
        ends: Vec<i32>,
        item: Box<Column>,
    },
    Map {
        ends: Vec<i32>,
        /// The keys and the values.
        entries: Box<[Column; 2]>,
        /// The entries whose key a later entry of the map repeats, ascending; removed when the column is finished.
        replaced: Vec<usize>,
    },
    Struct(Struct),
}

/// The columns of a struct. The columns get the struct's nulls in runs, so that nulls of a wide struct cost little.
#[derive(Debug)]
pub struct Struct {
    rows: usize,
    /// The number of rows that the parts have; the struct's later rows are null.
    filled: usize,
    parts: Vec<Column>,
}

#[derive(Debug)]
pub struct Bytes {
    text: bool,
    /// The number of rows that [`Column::convert`] has converted.
    converted: usize,
    ends: Vec<i32>,
    values: Vec<u8>,
}

/// A plan does not fit its column, or a column has 2^31 bytes or items: a bug, see `Budget`.
pub const MISMATCH: &str = "the decoder's plan does not fit its column, which is a bug in kafkagroup-native";
const TOO_MANY_DIGITS: &str = "the decimal has more digits than its precision";
const NOT_UTF8: &str = "the string is not UTF-8";

impl Bytes {
    fn new(text: bool) -> Self {
        Self { text, converted: 0, ends: vec![0], values: vec![] }
    }

    /// Removes `len` bytes from the start of `input`, and appends them as a row. Without `check`,
    /// [`Column::has_texts_of_utf8`] checks all rows together.
    #[inline(always)]
    pub fn push(&mut self, input: &mut &[u8], len: usize, check: bool) -> Parsed<()> {
        const SHORT: usize = 32;
        let around = input.first_chunk::<SHORT>();
        let bytes = take(input, len)?;
        if check && self.text && std::str::from_utf8(bytes).is_err() {
            return Err(NOT_UTF8);
        }
        let end = i32::try_from(self.values.len() + bytes.len()).map_err(|_| MISMATCH)?;
        match around {
            // A copy of a fixed size takes a few instructions; a copy of any other size is a function call.
            Some(around) if len <= SHORT => {
                self.values.extend_from_slice(around);
                self.values.truncate(end as usize);
            }
            _ => self.values.extend_from_slice(bytes),
        }
        self.ends.push(end);
        Ok(())
    }

    fn is_utf8(&self) -> bool {
        // Most texts are ASCII, which is checked fastest.
        !self.text
            || self.values.is_ascii()
            || std::str::from_utf8(&self.values)
                .is_ok_and(|text| self.ends.iter().all(|&end| text.is_char_boundary(end as usize)))
    }

    pub fn rows(&self) -> usize {
        self.ends.len() - 1
    }

    fn since(&self, first: usize) -> impl Iterator<Item = &[u8]> + Clone {
        self.ends.get(first..).unwrap_or_default().windows(2).map(|pair| match *pair {
            [start, end] => self.values.get(start as usize..end as usize).unwrap_or_default(),
            _ => &[],
        })
    }

    /// Appends bytes to the last row.
    pub fn extend_last(&mut self, bytes: &[u8]) -> Parsed<()> {
        self.values.extend_from_slice(bytes);
        let end = i32::try_from(self.values.len()).map_err(|_| MISMATCH)?;
        self.ends.last_mut().map(|last| *last = end).ok_or(MISMATCH)
    }

    pub fn truncate(&mut self, rows: usize) {
        self.converted = self.converted.min(rows);
        self.ends.truncate(rows + 1);
        self.values.truncate(self.ends.last().map_or(0, |&end| end as usize));
    }

    fn finish(self, kind: DataType, nulls: Option<NullBufferBuilder>) -> Result<ArrayData, ArrowError> {
        ArrayData::builder(kind)
            .len(self.rows())
            .add_buffer(Buffer::from_vec(self.ends))
            .add_buffer(Buffer::from_vec(self.values))
            .nulls(nulls.and_then(|mut nulls| nulls.finish()))
            .build()
    }
}

impl Column {
    pub fn new(slot: &Slot) -> Self {
        let data = match &slot.shape {
            Shape::Null => Data::Null(0),
            Shape::Boolean => Data::Boolean(BooleanBufferBuilder::new(0)),
            Shape::Int | Shape::Date => Data::Int(vec![]),
            Shape::Long | Shape::Duration | Shape::Timestamp { .. } => Data::Long(vec![]),
            Shape::Float => Data::Float(vec![]),
            Shape::Double => Data::Double(vec![]),
            Shape::Decimal { precision, .. } => {
                Data::Decimal { limit: 10i128.pow(u32::from(*precision)), values: vec![] }
            }
            Shape::Binary => Data::Bytes(Bytes::new(false)),
            Shape::Text | Shape::Json => Data::Bytes(Bytes::new(true)),
            Shape::List(item) => Data::List { ends: vec![0], item: Box::new(Self::new(item)) },
            Shape::Map(entry) => {
                let entries = Box::new([Self::new(&entry.key), Self::new(&entry.value)]);
                Data::Map { ends: vec![0], entries, replaced: vec![] }
            }
            Shape::Struct(parts) => {
                let parts = parts.iter().map(|part| Self::new(&part.slot)).collect();
                Data::Struct(Struct { rows: 0, filled: 0, parts })
            }
        };
        Self { nulls: slot.nullable.then(|| NullBufferBuilder::new(0)), data }
    }

    /// Marks a new row as not null, and returns the data, to which the caller has to add the row.
    #[inline(always)]
    pub fn row(&mut self) -> &mut Data {
        if let Some(nulls) = &mut self.nulls {
            nulls.append_non_null();
        }
        &mut self.data
    }

    /// Returns the data; the caller must not add a row.
    pub fn data(&mut self) -> &mut Data {
        &mut self.data
    }

    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| row < nulls.len() && !nulls.is_valid(row))
    }

    /// Removes the end of the last list or map of the column, so that this list or map gets the next items.
    pub fn reopen(&mut self) {
        let (Data::List { ends, .. } | Data::Map { ends, .. }) = &mut self.data else { return };
        ends.pop();
        let rows = ends.len() - 1;
        if let Some(nulls) = &mut self.nulls {
            nulls.truncate(rows);
        }
        if let Data::Map { ends, replaced, .. } = &mut self.data {
            let count = ends.last().map_or(0, |&end| end as usize);
            replaced.truncate(replaced.partition_point(|&entry| entry < count));
        }
    }

    #[inline(always)]
    pub fn rows(&self) -> usize {
        match &self.data {
            Data::Null(rows) | Data::Struct(Struct { rows, .. }) => *rows,
            Data::Boolean(values) => values.len(),
            Data::Int(values) => values.len(),
            Data::Long(values) => values.len(),
            Data::Float(values) => values.len(),
            Data::Double(values) => values.len(),
            Data::Decimal { values, .. } => values.len(),
            Data::Bytes(bytes) => bytes.rows(),
            Data::List { ends, .. } | Data::Map { ends, .. } => ends.len() - 1,
        }
    }

    /// Appends a null. A column that cannot have nulls gets any value, which is never read, because the struct around
    /// the column is null.
    pub fn push_null(&mut self) {
        if let Some(nulls) = &mut self.nulls {
            nulls.append_null();
        }
        match &mut self.data {
            Data::Null(rows) | Data::Struct(Struct { rows, .. }) => *rows += 1,
            Data::Boolean(values) => values.append(false),
            Data::Int(values) => values.push(0),
            Data::Long(values) => values.push(0),
            Data::Float(values) => values.push(0.0),
            Data::Double(values) => values.push(0.0),
            Data::Decimal { values, .. } => values.push(0),
            Data::Bytes(Bytes { ends, .. }) | Data::List { ends, .. } | Data::Map { ends, .. } => {
                ends.push(ends.last().copied().unwrap_or(0));
            }
        }
    }

    /// Appends this many nulls.
    pub fn push_nulls(&mut self, count: usize) {
        if let Some(nulls) = &mut self.nulls {
            nulls.append_n_nulls(count);
        }
        match &mut self.data {
            Data::Null(rows) | Data::Struct(Struct { rows, .. }) => *rows += count,
            Data::Boolean(values) => values.append_n(count, false),
            Data::Int(values) => values.resize(values.len() + count, 0),
            Data::Long(values) => values.resize(values.len() + count, 0),
            Data::Float(values) => values.resize(values.len() + count, 0.0),
            Data::Double(values) => values.resize(values.len() + count, 0.0),
            Data::Decimal { values, .. } => values.resize(values.len() + count, 0),
            Data::Bytes(Bytes { ends, .. }) | Data::List { ends, .. } | Data::Map { ends, .. } => {
                ends.resize(ends.len() + count, ends.last().copied().unwrap_or(0));
            }
        }
    }

    /// Replaces the bytes of each row since the last call by the bytes that `convert` appends.
    pub fn convert(&mut self, mut convert: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), Fault>) -> Result<(), Fault> {
        let Data::Bytes(bytes) = &mut self.data else { return Err(MISMATCH.into()) };
        let (first, rows) = (bytes.converted, bytes.rows());
        let start = bytes.ends.get(first).map_or(0, |&end| end as usize);
        let (ends, values) = (bytes.ends.split_off(first + 1), bytes.values.split_off(start));
        let mut before = 0;
        for (row, end) in (first..rows).zip(ends) {
            let end = end as usize - start;
            if !self.nulls.as_ref().is_some_and(|nulls| row < nulls.len() && !nulls.is_valid(row)) {
                convert(values.get(before..end).unwrap_or_default(), &mut bytes.values)?;
            }
            before = end;
            bytes.ends.push(i32::try_from(bytes.values.len()).map_err(|_| MISMATCH)?);
        }
        bytes.converted = rows;
        Ok(())
    }

    /// Removes all rows after the first `rows`, in all parts, even if these have different numbers of rows.
    pub fn truncate(&mut self, rows: usize) {
        if let Some(nulls) = &mut self.nulls {
            nulls.truncate(rows);
        }
        match &mut self.data {
            Data::Null(count) => *count = rows.min(*count),
            Data::Boolean(values) => values.truncate(rows),
            Data::Int(values) => values.truncate(rows),
            Data::Long(values) => values.truncate(rows),
            Data::Float(values) => values.truncate(rows),
            Data::Double(values) => values.truncate(rows),
            Data::Decimal { values, .. } => values.truncate(rows),
            Data::Bytes(bytes) => bytes.truncate(rows),
            Data::List { ends, item } => {
                ends.truncate(rows + 1);
                item.truncate(ends.last().map_or(0, |&end| end as usize));
            }
            Data::Map { ends, entries, replaced } => {
                ends.truncate(rows + 1);
                let count = ends.last().map_or(0, |&end| end as usize);
                entries.iter_mut().for_each(|column| column.truncate(count));
                replaced.truncate(replaced.partition_point(|&entry| entry < count));
            }
            Data::Struct(Struct { rows: count, filled, parts }) => {
                *count = rows.min(*count);
                *filled = rows.min(*filled);
                parts.iter_mut().for_each(|part| part.truncate(*filled));
            }
        }
    }

    /// For map keys: appends, in ascending order, the rows from `first` on whose value is in a later row too.
    pub fn replaced_since(&self, first: usize, replaced: &mut Vec<usize>) {
        match &self.data {
            Data::Bytes(bytes) => coming_again(bytes.since(first), first, replaced),
            Data::Int(values) => coming_again(values.iter().skip(first), first, replaced),
            Data::Long(values) => coming_again(values.iter().skip(first), first, replaced),
            Data::Boolean(values) => {
                coming_again((first..values.len()).map(|row| values.get_bit(row)), first, replaced);
            }
            _ => {}
        }
    }

    /// Returns whether each text of each row is UTF-8.
    pub fn has_texts_of_utf8(&self) -> bool {
        match &self.data {
            Data::Bytes(bytes) => bytes.is_utf8(),
            Data::List { item, .. } => item.has_texts_of_utf8(),
            Data::Map { entries, .. } => entries.iter().all(Self::has_texts_of_utf8),
            Data::Struct(inner) => inner.parts.iter().all(Self::has_texts_of_utf8),
            _ => true,
        }
    }

    /// Returns the Arrow array.
    pub fn finish(self, kind: &DataType) -> Result<ArrayData, ArrowError> {
        let rows = self.rows();
        let nulls = self.nulls;
        let plain = |buffer: Buffer, nulls: Option<NullBufferBuilder>| {
            let nulls = nulls.and_then(|mut nulls| nulls.finish());
            ArrayData::builder(kind.clone()).len(rows).add_buffer(buffer).nulls(nulls).build()
        };
        match self.data {
            Data::Null(_) => ArrayData::builder(kind.clone()).len(rows).build(),
            Data::Boolean(mut values) => plain(values.finish().into_inner(), nulls),
            Data::Int(values) => plain(Buffer::from_vec(values), nulls),
            Data::Long(values) => plain(Buffer::from_vec(values), nulls),
            Data::Float(values) => plain(Buffer::from_vec(values), nulls),
            Data::Double(values) => plain(Buffer::from_vec(values), nulls),
            Data::Decimal { values, .. } => plain(Buffer::from_vec(values), nulls),
            Data::Bytes(bytes) => bytes.finish(kind.clone(), nulls),
            Data::List { ends, item } => nested(kind, ends, vec![item.finish(item_type(kind))?], nulls),
            Data::Map { mut ends, entries, replaced } => {
                let kind_of_entries = item_type(kind);
                let columns = entries.into_iter().enumerate();
                let children = columns.map(|(i, column)| column.finish(child_type(kind_of_entries, i)));
                let children = children.collect::<Result<Vec<_>, _>>()?;
                let len = children.first().map_or(0, ArrayData::len);
                let mut entries = ArrayData::builder(kind_of_entries.clone()).len(len).child_data(children).build()?;
                if !replaced.is_empty() {
                    entries = without(&replaced, &entries)?;
                    for end in &mut ends {
                        *end -= replaced.partition_point(|&entry| entry < *end as usize) as i32;
                    }
                }
                nested(kind, ends, vec![entries], nulls)
            }
            Data::Struct(mut inner) => {
                inner.open();
                let parts = inner.parts.into_iter().enumerate();
                let children = parts.map(|(i, part)| part.finish(child_type(kind, i))).collect::<Result<_, _>>()?;
                let nulls = nulls.and_then(|mut nulls| nulls.finish());
                ArrayData::builder(kind.clone()).len(rows).child_data(children).nulls(nulls).build()
            }
        }
    }
}

impl Struct {
    /// Returns the number of rows, and the parts; the caller has to add a row to each part before [`Self::close`].
    #[inline(always)]
    pub fn open(&mut self) -> (usize, &mut [Column]) {
        if self.filled < self.rows {
            self.fill();
        }
        (self.rows, &mut self.parts)
    }

    #[inline(always)]
    pub fn close(&mut self) {
        self.rows += 1;
        self.filled = self.rows;
    }

    /// Opens the last row again; the row must not be null.
    pub fn reopen(&mut self) -> (usize, &mut [Column]) {
        self.rows -= 1;
        self.filled = self.rows;
        (self.rows, &mut self.parts)
    }

    /// Returns the parts; the caller must not add a row.
    pub fn parts(&mut self) -> &mut [Column] {
        &mut self.parts
    }

    #[cold]
    fn fill(&mut self) {
        let count = self.rows - self.filled;
        self.parts.iter_mut().for_each(|part| part.push_nulls(count));
        self.filled = self.rows;
    }
}

impl Data {
    /// Appends the two's complement `bytes`, most significant first, to a decimal column, with `shift` more digits
    /// after the point, or fewer if `shift` is negative.
    #[inline(always)]
    pub fn push_decimal(limit: i128, values: &mut Vec<i128>, bytes: &[u8], shift: i32) -> Parsed<()> {
        let negative = match bytes.first() {
            Some(first) => first & 0x80 != 0,
            None => return Err("the decimal has no bytes"),
        };
        let (filler, seed) = if negative { (0xff, -1i128) } else { (0, 0) };
        let digits =
            bytes.iter().position(|&byte| byte != filler).map_or(&[][..], |at| bytes.get(at..).unwrap_or_default());
        let fits = digits.len() < 16 || digits.len() == 16 && (digits.first() >= Some(&0x80)) == negative;
        let value = digits.iter().fold(seed, |value, &byte| value << 8 | i128::from(byte));
        let value = if !fits || shift == 0 { value } else { shifted(value, shift)? };
        if !fits || value >= limit || value <= -limit {
            return Err(TOO_MANY_DIGITS);
        }
        values.push(value);
        Ok(())
    }
}

#[cold]
fn shifted(value: i128, shift: i32) -> Parsed<i128> {
    // If the power is too large for the type, only zero is divisible by it.
    let power = 10i128.checked_pow(shift.unsigned_abs()).unwrap_or(i128::MAX);
    if shift > 0 {
        return value.checked_mul(power).ok_or(TOO_MANY_DIGITS);
    }
    if value % power == 0 {
        Ok(value / power)
    } else {
        Err("the decimal has more digits after the point than the column")
    }
}

/// Appends the numbers of the values that a later value repeats; the first value has the number `first`.
fn coming_again<T: Eq + Hash>(values: impl Iterator<Item = T> + Clone, first: usize, replaced: &mut Vec<usize>) {
    const FEW: usize = 8;
    if values.clone().nth(FEW).is_none() {
        let again = |i: usize, value: &T| values.clone().skip(i + 1).any(|other| other == *value);
        replaced.extend(values.clone().enumerate().filter(|(i, value)| again(*i, value)).map(|(i, _)| first + i));
    } else {
        let (start, mut last) = (replaced.len(), HashMap::new());
        replaced.extend(values.enumerate().filter_map(|(i, value)| last.insert(value, first + i)));
        replaced.get_mut(start..).unwrap_or_default().sort_unstable();
    }
}

/// Returns the entries of a map column without the entries `some`, whose numbers are ascending.
fn without(some: &[usize], entries: &ArrayData) -> Result<ArrayData, ArrowError> {
    let mut left = MutableArrayData::try_new(vec![entries], false, entries.len() - some.len())?;
    let mut start = 0;
    for &entry in some {
        left.try_extend(0, start, entry)?;
        start = entry + 1;
    }
    left.try_extend(0, start, entries.len())?;
    Ok(left.freeze())
}

/// Appends the end of a list; `items` is the number of items of all lists.
pub fn end(ends: &mut Vec<i32>, items: usize) -> Result<(), Fault> {
    ends.push(i32::try_from(items).map_err(|_| MISMATCH)?);
    Ok(())
}

fn nested(
    kind: &DataType,
    ends: Vec<i32>,
    children: Vec<ArrayData>,
    nulls: Option<NullBufferBuilder>,
) -> Result<ArrayData, ArrowError> {
    ArrayData::builder(kind.clone())
        .len(ends.len() - 1)
        .add_buffer(Buffer::from_vec(ends))
        .child_data(children)
        .nulls(nulls.and_then(|mut nulls| nulls.finish()))
        .build()
}

fn item_type(kind: &DataType) -> &DataType {
    match kind {
        DataType::List(item) | DataType::Map(item, _) => item.data_type(),
        _ => &DataType::Null,
    }
}

fn child_type(kind: &DataType, i: usize) -> &DataType {
    match kind {
        DataType::Struct(fields) => {
            fields.get(i).map_or(&DataType::Null, |field: &std::sync::Arc<Field>| field.data_type())
        }
        _ => &DataType::Null,
    }
}
