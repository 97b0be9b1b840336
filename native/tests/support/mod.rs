//! An encoder and a simple reader of RecordBatch v2, independent of the decoder that they check, and rows from Arrow.
#![allow(dead_code)]

pub mod changes;

use std::io::Write;

use arrow_data::ArrayData;
use kafkagroup_native::builder::{Batch, BatchBuilder, Limits};
use kafkagroup_native::columns::Column;
use kafkagroup_native::record_set::{Progress, RecordSet};

pub type Header = (Vec<u8>, Option<Vec<u8>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub offset: i64,
    pub timestamp_ms: i64,
    pub log_append: bool,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<Header>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    FramedSnappy,
    Lz4,
    Zstd,
}

pub const CODECS: [Codec; 6] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::FramedSnappy, Codec::Lz4, Codec::Zstd];

impl Codec {
    pub fn id(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy | Self::FramedSnappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    pub fn pack(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::None => bytes.to_vec(),
            Self::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Self::Snappy => snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
            Self::FramedSnappy => {
                let mut out = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01".to_vec();
                for block in bytes.chunks(40) {
                    let packed = Self::Snappy.pack(block);
                    out.extend((packed.len() as i32).to_be_bytes());
                    out.extend(packed);
                }
                out
            }
            Self::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(vec![]);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Self::Zstd => {
                let mut out = vec![0; zstd_safe::compress_bound(bytes.len())];
                let len = zstd_safe::compress(&mut out[..], bytes, 1).unwrap();
                out.truncate(len);
                out
            }
        }
    }
}

/// The fields of a batch's header that do not depend on its rows.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub codec: Codec,
    pub base_offset: i64,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub log_append_time: Option<i64>,
    pub producer_id: i64,
    pub transactional: bool,
    pub control: bool,
}

pub fn varint(value: i64, out: &mut Vec<u8>) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

fn nullable(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    varint(bytes.map_or(-1, |bytes| bytes.len() as i64), out);
    out.extend(bytes.unwrap_or_default());
}

/// Returns the records of a batch, not compressed.
pub fn records(shape: &Shape, rows: &[Row]) -> Vec<u8> {
    let mut out = vec![];
    for row in rows {
        let mut body = vec![0];
        varint(row.timestamp_ms.wrapping_sub(shape.base_timestamp), &mut body);
        varint(row.offset - shape.base_offset, &mut body);
        nullable(row.key.as_deref(), &mut body);
        nullable(row.value.as_deref(), &mut body);
        varint(row.headers.len() as i64, &mut body);
        for (key, value) in &row.headers {
            nullable(Some(key), &mut body);
            nullable(value.as_deref(), &mut body);
        }
        varint(body.len() as i64, &mut out);
        out.extend(body);
    }
    out
}

/// Returns a batch with these encoded records.
pub fn batch_of(shape: &Shape, count: i32, records: &[u8]) -> Vec<u8> {
    let packed = if count == 0 { vec![] } else { shape.codec.pack(records) };
    let mut out = vec![];
    out.extend(shape.base_offset.to_be_bytes());
    out.extend((49 + packed.len() as i32).to_be_bytes());
    out.extend(7i32.to_be_bytes());
    out.push(2);
    out.extend([0; 4]);
    let attributes = shape.codec.id()
        | if shape.log_append_time.is_some() { 0x08 } else { 0 }
        | if shape.transactional { 0x10 } else { 0 }
        | if shape.control { 0x20 } else { 0 };
    out.extend(attributes.to_be_bytes());
    out.extend(shape.last_offset_delta.to_be_bytes());
    out.extend(shape.base_timestamp.to_be_bytes());
    out.extend(shape.log_append_time.unwrap_or(shape.base_timestamp).to_be_bytes());
    out.extend(shape.producer_id.to_be_bytes());
    out.extend(0i16.to_be_bytes());
    out.extend(0i32.to_be_bytes());
    out.extend(count.to_be_bytes());
    out.extend(packed);
    fix_crc(&mut out);
    out
}

pub fn batch(shape: &Shape, rows: &[Row]) -> Vec<u8> {
    batch_of(shape, rows.len() as i32, &records(shape, rows))
}

/// Corrects the CRC of the batch at the start of `bytes`.
pub fn fix_crc(bytes: &mut [u8]) {
    let length = i32::from_be_bytes(bytes[8..12].try_into().unwrap());
    let Some(end) =
        usize::try_from(length).ok().map(|length| length + 12).filter(|&end| (21..=bytes.len()).contains(&end))
    else {
        return;
    };
    let crc = crc32c::crc32c(&bytes[21..end]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// Parses byte by byte with 128-bit sums, slow and simple. Returns None if the decoder must return an error.
pub fn plain_read(bytes: &[u8]) -> Option<Vec<Row>> {
    let mut reader = Plain(bytes);
    let base_offset = reader.int(8)?;
    let length = reader.int(4)?;
    reader.int(4)?;
    if reader.int(1)? != 2 || length + 12 != bytes.len() as i128 {
        return None;
    }
    reader.int(4)?;
    let attributes = reader.int(2)?;
    let last_delta = reader.int(4)?;
    let base_timestamp = reader.int(8)?;
    let max_timestamp = reader.int(8)?;
    reader.int(8)?;
    reader.int(2)?;
    reader.int(4)?;
    let count = reader.int(4)?;
    if attributes & 7 != 0 || base_offset < 0 || last_delta < 0 || count < 0 {
        return None;
    }
    if base_offset + last_delta >= i64::MAX as i128 {
        return None;
    }
    if attributes & 0x20 != 0 || count == 0 {
        return Some(vec![]);
    }
    let mut rows: Vec<Row> = vec![];
    let mut next = base_offset;
    for _ in 0..count {
        let length = reader.varint(32)?;
        let mut body = Plain(reader.bytes(length)?);
        body.int(1)?;
        let timestamp_delta = body.varint(64)?;
        let delta = body.varint(32)?;
        let key = body.nullable()?;
        let value = body.nullable()?;
        let mut headers = vec![];
        let header_count = body.varint(32)?;
        if header_count < 0 {
            return None;
        }
        for _ in 0..header_count {
            let name = body.nullable()??;
            headers.push((name, body.nullable()?));
        }
        let offset = base_offset + delta;
        if !body.0.is_empty() || offset < next || delta > last_delta {
            return None;
        }
        next = offset + 1;
        let log_append = attributes & 8 != 0;
        let timestamp = if log_append { max_timestamp } else { base_timestamp + timestamp_delta };
        i64::try_from(timestamp * 1000).ok()?;
        rows.push(Row {
            offset: i64::try_from(offset).ok()?,
            timestamp_ms: i64::try_from(timestamp).ok()?,
            log_append,
            key,
            value,
            headers,
        });
    }
    reader.0.is_empty().then_some(rows)
}

struct Plain<'a>(&'a [u8]);

impl<'a> Plain<'a> {
    fn bytes(&mut self, len: i128) -> Option<&'a [u8]> {
        let len = usize::try_from(len).ok().filter(|&len| len <= self.0.len())?;
        let (head, tail) = self.0.split_at(len);
        self.0 = tail;
        Some(head)
    }

    fn int(&mut self, len: i128) -> Option<i128> {
        let bytes = self.bytes(len)?;
        let raw = bytes.iter().fold(0u128, |sum, &byte| sum << 8 | u128::from(byte));
        let bits = 8 * len as u32;
        Some((raw as i128) << (128 - bits) >> (128 - bits))
    }

    fn varint(&mut self, bits: u32) -> Option<i128> {
        let mut raw = 0u128;
        for i in 0..bits.div_ceil(7) {
            let byte = self.bytes(1)?[0];
            raw |= u128::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                return (raw >> bits == 0).then_some((raw >> 1) as i128 ^ -((raw & 1) as i128));
            }
        }
        None
    }

    #[allow(clippy::option_option)]
    fn nullable(&mut self) -> Option<Option<Vec<u8>>> {
        let len = self.varint(32)?;
        if len < 0 { Some(None) } else { Some(Some(self.bytes(len)?.to_vec())) }
    }
}

/// Invalid UTF-8 in header keys is replaced as Java does it, so the keys are compared without the replacements.
pub fn same(rows: &[Row], expected: &[Row]) -> bool {
    let text = |row: &Row| {
        let mut row = row.clone();
        for (key, _) in &mut row.headers {
            *key = String::from_utf8_lossy(key).replace('\u{fffd}', "").into_bytes();
        }
        row
    };
    rows.iter().map(text).eq(expected.iter().map(text))
}

pub fn limits(batch_rows: usize, batch_bytes: usize) -> Limits {
    Limits { batch_rows, batch_bytes, max_unpacked_bytes: 1 << 20 }
}

/// Returns a builder for all columns, in the order that [`rows`] reads.
pub fn builder(limits: Limits) -> BatchBuilder {
    let columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"];
    BatchBuilder::new(&columns.map(|name| Column::parse(name, None).unwrap()), limits).unwrap()
}

fn cells(data: &ArrayData) -> Vec<Option<Vec<u8>>> {
    let ends: &[i32] = data.buffers()[0].typed_data();
    let values = data.buffers()[1].as_slice();
    (0..data.len()).map(|i| data.is_valid(i).then(|| values[ends[i] as usize..ends[i + 1] as usize].to_vec())).collect()
}

/// Returns the rows of a batch that has all columns.
pub fn rows(batch: &Batch, topic: &str, partition: i32) -> Vec<Row> {
    let children = batch.data.child_data();
    let (keys, values, topics) = (cells(&children[0]), cells(&children[1]), cells(&children[2]));
    let partitions: &[i32] = children[3].buffers()[0].typed_data();
    let offsets: &[i64] = children[4].buffers()[0].typed_data();
    let timestamps: &[i64] = children[5].buffers()[0].typed_data();
    let types: &[i32] = children[6].buffers()[0].typed_data();
    let lists = &children[7];
    let ends: &[i32] = lists.buffers()[0].typed_data();
    let entries = &lists.child_data()[0];
    let (names, contents) = (cells(&entries.child_data()[0]), cells(&entries.child_data()[1]));
    (0..batch.data.len())
        .map(|i| {
            assert_eq!(topics[i].as_deref(), Some(topic.as_bytes()));
            assert_eq!(partitions[i], partition);
            assert_eq!(timestamps[i] % 1000, 0);
            let headers: Vec<Header> = (ends[i] as usize..ends[i + 1] as usize)
                .map(|j| (names[j].clone().unwrap(), contents[j].clone()))
                .collect();
            assert_eq!(lists.is_valid(i), !headers.is_empty());
            Row {
                offset: offsets[i],
                timestamp_ms: timestamps[i] / 1000,
                log_append: types[i] == 1,
                key: keys[i].clone(),
                value: values[i].clone(),
                headers,
            }
        })
        .collect()
}

/// Returns all rows of a record set, read in as many batches as necessary.
pub fn read_all(
    records: &mut RecordSet<&[u8]>,
    builder: &mut BatchBuilder,
) -> (Vec<Row>, Option<kafkagroup_native::error::Error>) {
    let (topic, partition) = (records.topic().to_owned(), records.partition());
    let mut out = vec![];
    loop {
        let progress = records.append(builder);
        let full = builder.rows();
        let batch = builder.take().unwrap();
        assert_eq!(batch.data.len(), full);
        out.extend(rows(&batch, &topic, partition));
        match progress {
            Ok(Progress::Full) => assert!(full > 0),
            Ok(Progress::Done) => return (out, None),
            Err(error) => return (out, Some(error)),
        }
    }
}
