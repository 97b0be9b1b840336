//! What the fuzzers run: functions of any bytes, which panic if a promise of this crate is broken.
//!
//! `tests/corpus.rs` runs them over the inputs in the repository, `fuzz/` over those that libFuzzer makes.
#![allow(dead_code)]

use std::cell::RefCell;

use kafkagroup_native::aborted::AbortedTransactions;
use kafkagroup_native::arrays::{Binary, Headers, Int32, Validity};
use kafkagroup_native::codec::Decompressor;
use kafkagroup_native::compress::{Codec, Compressor};
use kafkagroup_native::encoder::{Encoder, Rows, Settings};
use kafkagroup_native::error::Kind;
use kafkagroup_native::filling::Producer;
use kafkagroup_native::record_set::RecordSet;
use kafkagroup_native::scan::scan;

use crate::support::{Row, builder, fix_crc, limits, plain_read, read_all, same};

const TOPIC: &str = "fuzzed";
const HEADER_LEN: usize = 61;
const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

/// A function of any bytes, with the name of its folder in the corpus.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: [Target; 3] = [("record_set", record_set), ("codec", codec), ("encoder", encoder)];

/// Decodes a record set. The first byte says which CRCs are corrected, which offsets are wanted, and what was aborted.
pub fn record_set(data: &[u8]) {
    let Some((&flags, bytes)) = data.split_first() else { return };
    let (as_stored, some_aborted, part) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
    let mut bytes = bytes.to_vec();
    if !as_stored {
        fix_crcs(&mut bytes);
    }
    let list: &[(i64, i64)] = if some_aborted { &[(0, 0), (1, 500), (2, 1500)] } else { &[] };
    let (from, to) = if part { (1001, 3000) } else { (0, i64::MAX) };
    let aborted = AbortedTransactions::new(list.iter().copied());
    let mut records = RecordSet::new(&bytes[..], TOPIC.into(), 3, from, to, aborted);
    let mut builder = builder(limits(5, 400));
    let (rows, error) = read_all(&mut records, &mut builder);
    assert!(rows.windows(2).all(|pair| pair[0].offset < pair[1].offset));
    assert!(rows.iter().all(|row| (from..records.next_offset().max(from)).contains(&row.offset)));
    if let Some(error) = &error {
        assert!(!error.reason.is_empty() && error.offset >= rows.last().map_or(from, |row| row.offset + 1), "{error}");
        // Not the reason: zstd's depends on the size of the buffer, which may have grown.
        let again = records.append(&mut builder).unwrap_err();
        assert_eq!((again.kind, again.offset), (error.kind, error.offset), "{error}\n{again}");
        return;
    }
    let whole = records.partial_batch_bytes().is_none() && records.consumed() == bytes.len();
    if whole && !part {
        let scanned = scan(&&bytes[..], from);
        assert_eq!((scanned.size, scanned.next_offset), (bytes.len(), records.next_offset()));
    }
    if whole && !part && !some_aborted && is_one_plain_batch(&bytes) {
        assert!(plain_read(&bytes).is_some_and(|expected| same(&rows, &expected)), "{rows:?}");
    }
}

fn is_one_plain_batch(bytes: &[u8]) -> bool {
    batch_end(bytes) == Some(bytes.len()) && bytes[22] & 7 == 0
}

/// Returns the size of the batch at the start; None if it is not complete.
fn batch_end(bytes: &[u8]) -> Option<usize> {
    let length = i32::from_be_bytes(bytes.get(8..12)?.try_into().ok()?);
    let end = usize::try_from(length).ok()? + 12;
    (HEADER_LEN..=bytes.len()).contains(&end).then_some(end)
}

fn fix_crcs(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(end) = batch_end(&bytes[at..]) {
        fix_crc(&mut bytes[at..]);
        at += end;
    }
}

thread_local! {
    // Their contexts are expensive.
    static COMPRESSORS: RefCell<Vec<Compressor>> = RefCell::new(
        CODECS.iter().map(|name| Compressor::new(Codec::parse(name, None).unwrap())).collect()
    );
}

/// Decompresses bytes up to a limit; what comes out comes out of the compressor too.
pub fn codec(data: &[u8]) {
    let [codec, limit, packed @ ..] = data else { return };
    let (codec, limit) = (codec % 6, [64, 4096, 70_000, 1 << 20][usize::from(limit % 4)]);
    let mut out = vec![];
    let outcome = Decompressor::new(limit).decompress(i16::from(codec), packed, &mut out);
    assert!(out.capacity() <= limit, "{} bytes for a limit of {limit}", out.capacity());
    match outcome {
        Ok(len) => {
            assert!((1..=4).contains(&codec) && len <= limit);
            out.truncate(len);
            round_trip(codec, &out);
        }
        Err(fault) => {
            assert!(matches!(fault.kind, Kind::Corrupt | Kind::TooLarge) && !fault.reason.is_empty(), "{fault:?}");
        }
    }
}

fn round_trip(codec: u8, bytes: &[u8]) {
    COMPRESSORS.with_borrow_mut(|compressors| {
        let packed = compressors[usize::from(codec)].compress(bytes).unwrap().unwrap();
        let mut out = vec![];
        let len = Decompressor::new(bytes.len().max(1)).decompress(i16::from(codec), packed, &mut out).unwrap();
        assert_eq!(&out[..len], bytes);
    });
}

/// Takes bytes one after the other; zeros at the end.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    /// Returns as many bytes as the next byte says, or all that are left.
    fn some(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (some, rest) = self.0.split_at(len);
        self.0 = rest;
        some
    }

    /// Returns small numbers, as Arrow stores 32-bit integers.
    fn numbers(&mut self) -> Vec<u8> {
        self.some().iter().flat_map(|&byte| i32::from(byte as i8).to_le_bytes()).collect()
    }
}

/// The buffers of a column, which may contradict each other.
struct Buffers<'a> {
    validity: Option<&'a [u8]>,
    first: usize,
    offsets: Vec<u8>,
    data: &'a [u8],
}

impl<'a> Buffers<'a> {
    fn new(bytes: &mut Bytes<'a>) -> Self {
        let first = usize::from(bytes.byte());
        let validity = (first & 1 != 0).then(|| bytes.some());
        // Rarely far beyond the buffers.
        let first = if first & 0xf0 == 0xf0 { usize::MAX - first } else { first >> 1 & 3 };
        Self { validity, first, offsets: bytes.numbers(), data: bytes.some() }
    }

    fn binary(&self) -> Binary<'_> {
        Binary::new(Validity(self.validity), self.first, &self.offsets, self.data)
    }
}

type KeyAndValue = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Encodes rows of columns whose buffers are any bytes; our decoder reads what was encoded.
pub fn encoder(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (flags, partitions, count) = (bytes.byte(), 1 + usize::from(bytes.byte() % 5), usize::from(bytes.byte() % 16));
    let settings = Settings {
        codec: Codec::parse(CODECS[usize::from(flags & 7) % CODECS.len()], None).unwrap(),
        batch_bytes: 1 + 4 * usize::from(bytes.byte()),
        record_bytes: 1 + 8 * usize::from(bytes.byte()),
        sticky: usize::from(bytes.byte()),
    };
    let columns: Vec<Buffers<'_>> = (0..4).map(|_| Buffers::new(&mut bytes)).collect();
    let (chosen, chosen_validity) = (bytes.numbers(), bytes.some());
    let lists = bytes.numbers();
    let [values, keys, header_keys, header_values] = &columns[..] else { return };
    let rows = Rows {
        rows: count,
        values: values.binary(),
        keys: (flags & 8 != 0).then(|| keys.binary()),
        chosen: (flags & 16 != 0).then(|| Int32::new(Validity(Some(chosen_validity)), 0, &chosen)),
        headers: (flags & 32 != 0)
            .then(|| Headers::new(Validity(None), 0, &lists, header_keys.binary(), header_values.binary())),
        timestamp: 1_600_000_000_000 + i64::from(flags),
    };
    let mut encoder = Encoder::new(settings).unwrap();
    encoder.identify(Producer { id: 5, epoch: 1, transactional: flags & 64 != 0 });
    let outcome = encoder.append(7, partitions, &rows);
    let mut written: Vec<KeyAndValue> = vec![];
    for batch in encoder.take(true).unwrap() {
        let read = decoded(&batch.bytes);
        assert_eq!((batch.topic, read.len()), (7, batch.count as usize));
        assert!(batch.partition < partitions);
        if read.len() >= 2 {
            let halves = encoder.split(&batch.bytes).unwrap();
            let again: Vec<Row> = halves.iter().flat_map(|half| decoded(half)).collect();
            let contents = |rows: &[Row]| -> Vec<_> {
                rows.iter().map(|row| (row.key.clone(), row.value.clone(), row.headers.clone())).collect()
            };
            assert_eq!(contents(&read), contents(&again));
        }
        written.extend(read.into_iter().map(|row| (row.key, row.value)));
    }
    assert_eq!(encoder.pending(), 0);
    if outcome.is_ok() {
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let mut given: Vec<_> = (0..count)
            .map(|row| {
                let key = rows.keys.as_ref().and_then(|keys| keys.get(row).unwrap());
                (owned(key), owned(rows.values.get(row).unwrap()))
            })
            .collect();
        given.sort();
        written.sort();
        assert_eq!(given, written);
    } else {
        assert!(written.len() < count);
    }
}

fn decoded(batch: &[u8]) -> Vec<Row> {
    let mut records = RecordSet::new(batch, TOPIC.into(), 0, 0, i64::MAX, AbortedTransactions::default());
    let (rows, error) = read_all(&mut records, &mut builder(limits(5, 400)));
    assert_eq!(error, None);
    assert_eq!(records.partial_batch_bytes(), None);
    rows
}
