//! A column whose value is the same for many rows.

use std::sync::Arc;

use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};

/// The rows of a column as runs, each with its value and first row, and the last array that has only one value.
///
/// Most batches have rows of one topic-partition, so the next batch gets a slice of the last array, which need not be
/// written and validated again.
pub(crate) struct Runs<T> {
    runs: Vec<(T, usize)>,
    last: Option<(T, ArrayData)>,
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self { runs: vec![], last: None }
    }
}

impl<T: Clone + PartialEq> Runs<T> {
    /// Sets the value of the rows from `row` on.
    pub fn start(&mut self, value: T, row: usize) {
        match self.runs.last_mut() {
            Some(last) if last.0 == value => {}
            Some(last) if last.1 == row => last.0 = value,
            _ => self.runs.push((value, row)),
        }
    }

    /// Returns (value, number of rows) of each run, and empties the column.
    fn take(&mut self, rows: usize) -> Vec<(T, usize)> {
        let mut end = rows;
        let mut runs: Vec<_> = std::mem::take(&mut self.runs)
            .into_iter()
            .rev()
            .map(|(value, start)| (value, std::mem::replace(&mut end, start).saturating_sub(start)))
            .collect();
        runs.reverse();
        runs
    }

    /// Returns the array of the first `rows` rows, and empties the column; `build` makes an array of runs.
    fn take_array(
        &mut self,
        rows: usize,
        build: impl FnOnce(&[(T, usize)]) -> Result<ArrayData, ArrowError>,
    ) -> Result<ArrayData, ArrowError> {
        let runs = self.take(rows);
        let [(value, _)] = runs.as_slice() else {
            return build(&runs);
        };
        if let Some((last, array)) = &self.last
            && last == value
            && array.len() >= rows
        {
            return Ok(array.slice(0, rows));
        }
        let array = build(&runs)?;
        self.last = Some((value.clone(), array.clone()));
        Ok(array)
    }
}

impl Runs<i32> {
    pub fn take_integers(&mut self, rows: usize) -> Result<ArrayData, ArrowError> {
        self.take_array(rows, |runs| {
            let mut values = Vec::with_capacity(rows);
            for &(value, count) in runs {
                values.resize(values.len() + count, value);
            }
            ArrayData::builder(DataType::Int32).len(rows).add_buffer(Buffer::from_vec(values)).build()
        })
    }
}

impl Runs<Arc<str>> {
    pub fn take_text(&mut self, rows: usize) -> Result<ArrayData, ArrowError> {
        self.take_array(rows, |runs| {
            let mut ends = Vec::with_capacity(rows + 1);
            let mut values: Vec<u8> = vec![];
            ends.push(0i32);
            for (text, count) in runs {
                let start = values.len();
                values.extend(text.as_bytes().repeat(*count));
                ends.extend((1..=*count).map(|i| (start + i * text.len()) as i32));
            }
            ArrayData::builder(DataType::Utf8)
                .len(rows)
                .add_buffer(Buffer::from_vec(ends))
                .add_buffer(Buffer::from_vec(values))
                .build()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integers(array: &ArrayData) -> Vec<i32> {
        array.buffer::<i32>(0)[..array.len()].to_vec()
    }

    fn texts(array: &ArrayData) -> Vec<&str> {
        let (ends, bytes) = (array.buffer::<i32>(0), array.buffers()[1].as_slice());
        let text = |i: usize| std::str::from_utf8(&bytes[ends[i] as usize..ends[i + 1] as usize]).unwrap();
        (0..array.len()).map(text).collect()
    }

    #[test]
    fn batches_of_one_value_share_an_array() {
        let mut column = Runs::<i32>::default();
        let mut batch = |rows| {
            // A partition without rows, and a partition whose rows come in two parts.
            column.start(8, 0);
            column.start(7, 0);
            column.start(7, 1);
            column.take_integers(rows).unwrap()
        };
        let (one, shorter, longer, empty) = (batch(3), batch(2), batch(5), batch(0));
        assert_eq!(integers(&one), [7; 3]);
        assert_eq!(integers(&shorter), [7; 2]);
        assert_eq!(integers(&longer), [7; 5]);
        assert_eq!(integers(&empty), [0; 0]);
        assert_eq!(one.buffers()[0].as_ptr(), shorter.buffers()[0].as_ptr());
        assert_ne!(one.buffers()[0].as_ptr(), longer.buffers()[0].as_ptr());
    }

    #[test]
    fn every_batch_has_its_own_values() {
        let mut column = Runs::<Arc<str>>::default();
        let mut batch = |starts: &[(&str, usize)], rows| {
            for &(topic, row) in starts {
                column.start(topic.into(), row);
            }
            column.take_text(rows).unwrap()
        };
        let one = batch(&[("a", 0)], 2);
        let other = batch(&[("bb", 0)], 2);
        let both = batch(&[("bb", 0), ("", 1), ("a", 3)], 4);
        let again = batch(&[("bb", 0)], 1);
        assert_eq!(texts(&one), ["a", "a"]);
        assert_eq!(texts(&other), ["bb", "bb"]);
        assert_eq!(texts(&both), ["bb", "", "", "a"]);
        assert_eq!(texts(&again), ["bb"]);
        for array in [one, other, both, again] {
            array.validate_full().unwrap();
        }
    }
}
