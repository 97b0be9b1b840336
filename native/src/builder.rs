//! Collects records into Arrow buffers of the requested columns, until a record batch is full by rows or bytes.

use std::sync::Arc;

use arrow_buffer::{Buffer, NullBufferBuilder};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Schema};

use crate::codec::Decompressor;
use crate::columns::{Column, TOO_LARGE, header_fields, schema};
use crate::error::Fault;
use crate::java_utf8;
use crate::record::{Headers, Record};
use crate::runs::Runs;

/// A buffer above this size is freed after use and not kept for the next batch.
const KEEP_AT_MOST: usize = 32 << 20;
/// The limit on the bytes of one batch, even if it has only one row, because Arrow's offsets have 32 bits.
const ARROW_MOST: usize = i32::MAX as usize;
/// The largest allowed `batch_bytes`.
pub const MOST_BATCH_BYTES: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of rows of a batch.
    pub batch_rows: usize,
    /// Maximum bytes of a batch's Arrow buffers. A larger row is a batch of its own.
    pub batch_bytes: usize,
    /// Maximum bytes of the decompressed records of one compressed batch.
    pub max_unpacked_bytes: usize,
}

/// The timestamp type of a record batch, and its append time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub base_timestamp: i64,
    /// The broker's append time, which replaces the producer's timestamps; None: the timestamps are create times.
    pub log_append_time: Option<i64>,
}

/// Collects rows of any number of topic-partitions into one Arrow batch.
pub struct BatchBuilder {
    columns: Vec<Column>,
    schema: Arc<Schema>,
    limits: Limits,
    fixed_width: usize,
    rows: usize,
    bytes: usize,
    key: Option<Bytes>,
    value: Option<Bytes>,
    headers: Option<HeaderLists>,
    offsets: Option<Vec<i64>>,
    timestamps: Option<Vec<i64>>,
    topics: Option<Runs<Arc<str>>>,
    partitions: Option<Runs<i32>>,
    timestamp_types: Option<Runs<i32>>,
    topic_width: usize,
    pub(crate) decompressor: Decompressor,
    spare: Vec<Vec<u8>>,
}

/// A finished batch: a struct array with one child per column.
#[derive(Clone, Debug)]
pub struct Batch {
    pub schema: Arc<Schema>,
    pub data: ArrayData,
    /// Bytes of the Arrow buffers, as counted against `batch_bytes`.
    pub bytes: usize,
}

impl BatchBuilder {
    pub fn new(columns: &[Column], limits: Limits) -> Result<Self, String> {
        let has = |name: &str| columns.iter().any(|column| column.name() == name);
        for (i, column) in columns.iter().enumerate() {
            if columns.iter().skip(i + 1).any(|other| other.name() == column.name()) {
                return Err(format!("column {} is asked for twice; name it once", column.name()));
            }
        }
        if limits.batch_rows == 0 || limits.batch_rows > ARROW_MOST {
            return Err(format!("batch_rows is 1 to {ARROW_MOST}, not {}", limits.batch_rows));
        }
        if limits.batch_bytes == 0 || limits.batch_bytes > MOST_BATCH_BYTES {
            return Err(format!("batch_bytes is 1 to {MOST_BATCH_BYTES}, not {}", limits.batch_bytes));
        }
        if limits.max_unpacked_bytes == 0 || limits.max_unpacked_bytes > ARROW_MOST {
            return Err(format!("max_unpacked_bytes is 1 to {ARROW_MOST}, not {}", limits.max_unpacked_bytes));
        }
        let text =
            |name: &str| columns.iter().any(|column| column.name() == name && column.data_type() == DataType::Utf8);
        Ok(Self {
            columns: columns.to_vec(),
            schema: Arc::new(schema(columns)),
            limits,
            fixed_width: columns.iter().map(|column| column.fixed_width()).sum(),
            rows: 0,
            bytes: 0,
            key: has("key").then(|| Bytes::new(text("key"))),
            value: has("value").then(|| Bytes::new(text("value"))),
            headers: has("headers").then(HeaderLists::default),
            offsets: has("offset").then(Vec::new),
            timestamps: has("timestamp").then(Vec::new),
            topics: has("topic").then(Runs::default),
            partitions: has("partition").then(Runs::default),
            timestamp_types: has("timestampType").then(Runs::default),
            topic_width: 0,
            decompressor: Decompressor::new(limits.max_unpacked_bytes),
            spare: vec![],
        })
    }

    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the topic-partition of the following rows.
    pub(crate) fn at_partition(&mut self, topic: &Arc<str>, partition: i32) {
        self.topic_width = if self.topics.is_some() { topic.len() } else { 0 };
        if let Some(topics) = &mut self.topics {
            topics.start(topic.clone(), self.rows);
        }
        if let Some(partitions) = &mut self.partitions {
            partitions.start(partition, self.rows);
        }
    }

    /// Sets the timestamp type of the following rows, all of one record batch.
    pub(crate) fn at_batch(&mut self, stamp: Stamp) {
        if let Some(types) = &mut self.timestamp_types {
            types.start(i32::from(stamp.log_append_time.is_some()), self.rows);
        }
    }

    /// Appends a row. Returns false if the batch has no room; the row must then be the first of the next batch.
    #[inline(always)]
    pub(crate) fn push(&mut self, record: &Record<'_>, offset: i64, stamp: Stamp) -> Result<bool, Fault> {
        let mut width = self.fixed_width + self.topic_width;
        if let (Some(_), Some(key)) = (&self.key, record.key) {
            width += key.len();
        }
        if let (Some(_), Some(value)) = (&self.value, record.value) {
            width += value.len();
        }
        if let (Some(_), false) = (&self.headers, record.headers.is_empty()) {
            width += HeaderLists::width(&record.headers);
        }
        let bytes = self.bytes + width;
        if self.rows > 0 && (self.rows >= self.limits.batch_rows || bytes > self.limits.batch_bytes) {
            return Ok(false);
        }
        if bytes > ARROW_MOST {
            return Err(Fault::unreadable(format!(
                "a row of {width} bytes is larger than an Arrow batch can be ({ARROW_MOST} bytes)"
            )));
        }
        // Everything that can fail is done before a column changes, so that all columns keep the same length.
        let timestamp = match &self.timestamps {
            Some(_) => match timestamp_us(record, stamp) {
                None if self.columns.contains(&Column::Timestamp { lenient: true }) => TOO_LARGE,
                found => found.ok_or_else(too_large)?,
            },
            None => 0,
        };
        if let Some(key) = &self.key {
            key.check("key", record.key)?;
        }
        if let Some(value) = &self.value {
            value.check("value", record.value)?;
        }
        if let Some(offsets) = &mut self.offsets {
            offsets.push(offset);
        }
        if let Some(timestamps) = &mut self.timestamps {
            timestamps.push(timestamp);
        }
        if let Some(key) = &mut self.key {
            key.push(record.key);
        }
        if let Some(value) = &mut self.value {
            value.push(record.value);
        }
        if let Some(headers) = &mut self.headers {
            headers.push(&record.headers);
        }
        self.rows += 1;
        self.bytes = bytes;
        Ok(true)
    }

    /// Returns the batch, empty or not, and starts the next one.
    pub fn take(&mut self) -> Result<Batch, ArrowError> {
        let rows = std::mem::take(&mut self.rows);
        let bytes = std::mem::take(&mut self.bytes);
        let mut children = Vec::with_capacity(self.columns.len());
        for &column in &self.columns {
            let kind = column.data_type();
            let built = match column {
                Column::Key { .. } => self.key.as_mut().map(|bytes| bytes.take(kind)),
                Column::Value { .. } => self.value.as_mut().map(|bytes| bytes.take(kind)),
                Column::Headers => self.headers.as_mut().map(|lists| lists.take(kind)),
                Column::Offset => self.offsets.as_mut().map(|values| fixed(kind, rows, renew(values))),
                Column::Timestamp { .. } => self.timestamps.as_mut().map(|values| fixed(kind, rows, renew(values))),
                Column::Topic => self.topics.as_mut().map(|runs| runs.take_text(rows)),
                Column::Partition => self.partitions.as_mut().map(|runs| runs.take_integers(rows)),
                Column::TimestampType => self.timestamp_types.as_mut().map(|runs| runs.take_integers(rows)),
            };
            children.extend(built.transpose()?);
        }
        let data = ArrayData::builder(DataType::Struct(self.schema.fields().clone()))
            .len(rows)
            .child_data(children)
            .build()?;
        Ok(Batch { schema: self.schema.clone(), data, bytes })
    }

    /// Returns a buffer for a batch's bytes, which [`Self::recycle`] takes back, so that no batch needs a new buffer.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(crate) fn recycle(&mut self, buffer: Vec<u8>) {
        if buffer.len() <= KEEP_AT_MOST && self.spare.len() < 2 {
            self.spare.push(buffer);
        }
    }
}

/// Returns the timestamp of a record in microseconds since 1970; None if it is too large.
#[inline(always)]
fn timestamp_us(record: &Record<'_>, stamp: Stamp) -> Option<i64> {
    match stamp.log_append_time {
        Some(ms) => Some(ms),
        None => stamp.base_timestamp.checked_add(record.timestamp_delta),
    }
    .and_then(|ms| ms.checked_mul(1000))
}

#[cold]
fn too_large() -> Fault {
    Fault::unreadable("the timestamp is too large for microseconds; do not request the column timestamp")
}

/// A binary or string column.
///
/// Until the first value, the column only counts rows. Batches of nulls share an array: many topics have no keys.
struct Bytes {
    text: bool,
    ends: Vec<i32>,
    values: Vec<u8>,
    nulls: NullBufferBuilder,
    /// The number of rows before the first value; these rows are null and not yet in the vectors.
    counted: usize,
    /// The last array of nulls only.
    without_values: Option<ArrayData>,
}

impl Bytes {
    fn new(text: bool) -> Self {
        let nulls = NullBufferBuilder::new(0);
        Self { text, ends: vec![0], values: vec![], nulls, counted: 0, without_values: None }
    }

    #[inline(always)]
    fn check(&self, name: &str, bytes: Option<&[u8]>) -> Result<(), Fault> {
        match bytes {
            Some(bytes) if self.text => match std::str::from_utf8(bytes) {
                Ok(_) => Ok(()),
                Err(error) => {
                    Err(Fault::unreadable(format!("the {name} is not UTF-8 ({error}); request {name} as binary")))
                }
            },
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn push(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => {
                if self.counted > 0 {
                    self.write_counted();
                }
                self.values.extend_from_slice(bytes);
                self.nulls.append_non_null();
            }
            None if self.ends.len() == 1 => {
                self.counted += 1;
                return;
            }
            None => self.nulls.append_null(),
        }
        // No overflow, because the builder keeps a batch's bytes below 2^31.
        self.ends.push(self.values.len() as i32);
    }

    #[cold]
    fn write_counted(&mut self) {
        let rows = std::mem::take(&mut self.counted);
        self.ends.resize(1 + rows, 0);
        self.nulls.append_n_nulls(rows);
    }

    fn take(&mut self, kind: DataType) -> Result<ArrayData, ArrowError> {
        if let (rows @ 1.., Some(array)) = (self.counted, &self.without_values)
            && array.len() >= rows
        {
            self.counted = 0;
            return Ok(array.slice(0, rows));
        }
        let is_null = self.counted > 0;
        if is_null {
            self.write_counted();
        }
        let ends = renew(&mut self.ends);
        self.ends.push(0);
        let array = ArrayData::builder(kind)
            .len(ends.len() - 1)
            .add_buffer(Buffer::from_vec(ends))
            .add_buffer(Buffer::from_vec(renew(&mut self.values)))
            .nulls(self.nulls.finish())
            .build()?;
        if is_null {
            self.without_values = Some(array.clone());
        }
        Ok(array)
    }
}

/// The `headers` column: a list of (key, value) per record, null for a record without headers.
struct HeaderLists {
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
    keys: Bytes,
    values: Bytes,
}

impl Default for HeaderLists {
    fn default() -> Self {
        Self { ends: vec![0], nulls: NullBufferBuilder::new(0), keys: Bytes::new(true), values: Bytes::new(false) }
    }
}

impl HeaderLists {
    /// Returns an upper bound of the headers' bytes in Arrow; each byte that is not UTF-8 can become three bytes.
    fn width(headers: &Headers<'_>) -> usize {
        let keys = headers.iter().map(|(key, _)| if std::str::from_utf8(key).is_ok() { 0 } else { 2 * key.len() });
        headers.len() + 8 * headers.count + keys.sum::<usize>()
    }

    fn push(&mut self, headers: &Headers<'_>) {
        for (key, value) in headers.iter() {
            // Spark's built-in source decodes keys with Java's `String`.
            self.keys.push(Some(java_utf8::decode(key).as_bytes()));
            self.values.push(value);
        }
        if headers.is_empty() {
            self.nulls.append_null();
        } else {
            self.nulls.append_non_null();
        }
        self.ends.push((self.keys.ends.len() - 1) as i32);
    }

    fn take(&mut self, kind: DataType) -> Result<ArrayData, ArrowError> {
        let keys = self.keys.take(DataType::Utf8)?;
        let values = self.values.take(DataType::Binary)?;
        let ends = renew(&mut self.ends);
        self.ends.push(0);
        let entries = ArrayData::builder(DataType::Struct(header_fields()))
            .len(keys.len())
            .child_data(vec![keys, values])
            .build()?;
        ArrayData::builder(kind)
            .len(ends.len() - 1)
            .add_buffer(Buffer::from_vec(ends))
            .add_child_data(entries)
            .nulls(self.nulls.finish())
            .build()
    }
}

fn fixed<T: arrow_buffer::ArrowNativeType>(
    kind: DataType,
    rows: usize,
    values: Vec<T>,
) -> Result<ArrayData, ArrowError> {
    ArrayData::builder(kind).len(rows).add_buffer(Buffer::from_vec(values)).build()
}

/// Returns the values and leaves an empty vector with the same capacity, because the next batch probably has the same
/// size. The capacity is limited, in case a single large row has made this batch large.
fn renew<T>(values: &mut Vec<T>) -> Vec<T> {
    let room = values.len() + values.len() / 8 + 1;
    std::mem::replace(values, Vec::with_capacity(room.min(KEEP_AT_MOST / size_of::<T>())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::record::HeaderWriter;

    const LIMITS: Limits = Limits { batch_rows: 100, batch_bytes: 10_000, max_unpacked_bytes: 1 };
    const STAMP: Stamp = Stamp { base_timestamp: 5, log_append_time: None };

    fn record<'a>(key: Option<&'a [u8]>, value: Option<&'a [u8]>) -> Record<'a> {
        Record { timestamp_delta: 0, offset_delta: 0, key, value, headers: Headers::default() }
    }

    #[test]
    fn limits_and_columns_out_of_range_are_refused() {
        let refused = |batch_rows, batch_bytes, max_unpacked_bytes| {
            let limits = Limits { batch_rows, batch_bytes, max_unpacked_bytes };
            BatchBuilder::new(&[Column::Offset], limits).err()
        };
        for (least, most, name) in [(0, ARROW_MOST, "batch_rows"), (0, MOST_BATCH_BYTES, "batch_bytes")] {
            let of = |value| if name == "batch_rows" { refused(value, 1, 1) } else { refused(1, value, 1) };
            assert_eq!((of(least + 1), of(most)), (None, None));
            assert!([least, most + 1].into_iter().all(|value| of(value).unwrap().contains(name)), "{name}");
        }
        assert_eq!((refused(1, 1, 1), refused(1, 1, ARROW_MOST)), (None, None));
        assert!([0, ARROW_MOST + 1].into_iter().all(|value| refused(1, 1, value).unwrap().contains("max_unpacked")));
        let twice = [Column::Key { text: false }, Column::Offset, Column::Key { text: true }];
        assert!(BatchBuilder::new(&twice, LIMITS).err().unwrap().contains("key"));
    }

    #[test]
    fn a_batch_is_full_at_its_rows_and_at_its_bytes() {
        // A row has the ends of key, value, headers and topic, the offset, 2 bytes of key, 3 of value, and 3 of topic.
        const ROW: usize = 4 * 4 + 8 + 2 + 3 + 3;
        let columns = [
            Column::Key { text: false },
            Column::Value { text: false },
            Column::Headers,
            Column::Topic,
            Column::Offset,
        ];
        for (batch_rows, batch_bytes, fit) in
            [(3, 10 * ROW, 3), (9, 2 * ROW, 2), (9, 3 * ROW - 1, 2), (1, 10 * ROW, 1), (9, 1, 1)]
        {
            let limits = Limits { batch_rows, batch_bytes, max_unpacked_bytes: 1 };
            let mut builder = BatchBuilder::new(&columns, limits).unwrap();
            builder.at_partition(&"abc".into(), 0);
            // Two batches, because the second batch must begin with nothing.
            for _ in 0..2 {
                for row in 0..fit {
                    assert_eq!((builder.rows(), builder.bytes()), (row, row * ROW));
                    assert_eq!(builder.push(&record(Some(b"kk"), Some(b"vvv")), 7, STAMP), Ok(true));
                }
                assert_eq!(builder.push(&record(Some(b"kk"), Some(b"vvv")), 7, STAMP), Ok(false));
                assert_eq!((builder.rows(), builder.bytes()), (fit, fit * ROW));
                let batch = builder.take().unwrap();
                assert_eq!((batch.data.len(), batch.bytes), (fit, fit * ROW));
                builder.at_partition(&"abc".into(), 0);
            }
        }
        let mut only_keys = BatchBuilder::new(&columns[..1], LIMITS).unwrap();
        only_keys.at_partition(&"abc".into(), 0);
        assert_eq!(only_keys.push(&record(Some(b"kk"), Some(b"vvv")), 7, STAMP), Ok(true));
        assert_eq!(only_keys.bytes(), 4 + 2);
    }

    #[test]
    fn headers_take_no_more_than_is_counted() {
        for (key, extra) in [(&b"key"[..], 0), (b"\xff\xfe\xfd", 2 * 3)] {
            let mut headers = HeaderWriter::default();
            headers.push(key, Some(b"value"));
            headers.push(key, None);
            let mut builder = BatchBuilder::new(&[Column::Headers], LIMITS).unwrap();
            for headers in [headers.headers(), Headers::default()] {
                assert_eq!(builder.push(&Record { headers, ..record(None, None) }, 0, STAMP), Ok(true));
            }
            // An end for each row, two for each header, the encoded headers, two bytes more for an invalid byte.
            let counted = 2 * 4 + 2 * (2 * 4 + 1 + key.len() + 1 + extra) + 5;
            let batch = builder.take().unwrap();
            assert_eq!(batch.bytes, counted);
            let lists = &batch.data.child_data()[0];
            assert_eq!((lists.is_null(0), lists.is_null(1)), (false, true));
            let [keys, values] = lists.child_data()[0].child_data() else { panic!("two columns") };
            let texts = keys.buffers()[1].len() + values.buffers()[1].len();
            assert!(2 * 4 + 2 * 2 * 4 + texts <= counted, "{texts}");
        }
    }

    #[test]
    fn a_lenient_column_has_a_sign_for_a_timestamp_that_is_too_large() {
        let mut builder = BatchBuilder::new(&[Column::Timestamp { lenient: true }], LIMITS).unwrap();
        for base_timestamp in [i64::MAX / 1000, i64::MAX / 1000 + 1, i64::MAX] {
            let record = Record { timestamp_delta: 0, ..record(None, None) };
            assert_eq!(builder.push(&record, 0, Stamp { base_timestamp, log_append_time: None }), Ok(true));
        }
        let batch = builder.take().unwrap();
        assert_eq!(batch.data.child_data()[0].buffer::<i64>(0)[..3], [i64::MAX / 1000 * 1000, TOO_LARGE, TOO_LARGE]);
    }

    #[test]
    fn a_row_that_cannot_be_represented_leaves_the_batch_as_it_was() {
        let (key, value) = (Column::Key { text: true }, Column::Value { text: true });
        let columns = [key, value, Column::Timestamp { lenient: false }, Column::TimestampType];
        let mut builder = BatchBuilder::new(&columns, LIMITS).unwrap();
        let late = Stamp { log_append_time: Some(i64::MAX / 1000), ..STAMP };
        let too_late = Stamp { log_append_time: Some(i64::MAX / 1000 + 1), ..STAMP };
        let overflowing = Stamp { base_timestamp: i64::MAX, ..STAMP };
        let after = Record { timestamp_delta: 2, ..record(None, Some(b"v")) };
        builder.at_batch(STAMP);
        assert_eq!(builder.push(&after, 0, STAMP), Ok(true));
        builder.at_batch(late);
        for (record, stamp) in [
            (record(Some(b"\xff"), None), STAMP),
            (record(None, Some(b"\xff")), STAMP),
            (after, too_late),
            (after, overflowing),
        ] {
            assert_eq!(builder.push(&record, 0, stamp).unwrap_err().kind, Kind::Unreadable);
        }
        assert_eq!(builder.push(&after, 0, late), Ok(true));
        let batch = builder.take().unwrap();
        assert_eq!(batch.data.child_data()[2].buffer::<i64>(0)[..2], [7000, i64::MAX / 1000 * 1000]);
        assert_eq!(batch.data.child_data()[3].buffer::<i32>(0)[..2], [0, 1]);
        assert_eq!(batch.data.child_data().iter().map(ArrayData::len).collect::<Vec<_>>(), [2; 4]);
        // Columns without the timestamp can take the row.
        let mut builder = BatchBuilder::new(&[Column::Key { text: false }], LIMITS).unwrap();
        assert_eq!(builder.push(&record(Some(b"\xff"), None), 0, too_late), Ok(true));
    }

    #[test]
    fn a_buffer_serves_again_unless_it_is_large() {
        let mut builder = BatchBuilder::new(&[Column::Offset], LIMITS).unwrap();
        let buffer = vec![7; 10];
        let place = buffer.as_ptr();
        builder.recycle(buffer);
        builder.recycle(vec![0; KEEP_AT_MOST + 1]);
        let (again, other) = (builder.buffer(), builder.buffer());
        assert_eq!((again.as_ptr(), other.capacity()), (place, 0));
    }

    #[test]
    fn batches_without_a_value_share_an_array() {
        let mut column = Bytes::new(false);
        let mut batch = |rows: &[Option<&[u8]>]| {
            rows.iter().for_each(|&row| column.push(row));
            column.take(DataType::Binary).unwrap()
        };
        let (one, shorter, longer) = (batch(&[None; 3]), batch(&[None; 2]), batch(&[None; 5]));
        let mixed = batch(&[None, None, Some(b"ab"), None, Some(b"")]);
        let (again, empty) = (batch(&[None; 4]), batch(&[]));
        let null_counts =
            [&one, &shorter, &longer, &mixed, &again, &empty].map(|array| (array.len(), array.null_count()));
        assert_eq!(null_counts, [(3, 3), (2, 2), (5, 5), (5, 3), (4, 4), (0, 0)]);
        assert_eq!(mixed.buffer::<i32>(0)[..6], [0, 0, 0, 2, 2, 2]);
        assert_eq!(mixed.buffers()[1].as_slice(), b"ab");
        assert_eq!([0, 1, 2, 3, 4].map(|row| mixed.is_null(row)), [true, true, false, true, false]);
        assert_eq!(one.buffers()[0].as_ptr(), shorter.buffers()[0].as_ptr());
        assert_eq!(longer.buffers()[0].as_ptr(), again.buffers()[0].as_ptr());
        for array in [one, shorter, longer, mixed, again, empty] {
            array.validate_full().unwrap();
        }
    }
}
