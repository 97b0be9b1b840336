//! Walks the batches of one partition: checks the CRC, and skips aborted records and records out of the range.

use std::sync::Arc;

use crate::aborted::AbortedTransactions;
use crate::builder::{BatchBuilder, Stamp};
use crate::codec::Decompressor;
use crate::error::{Error, Fault};
use crate::header::{BatchHeader, CRC_START, Envelope, HEADER_LEN, LOG_OVERHEAD, MAGIC_END, check_magic};
use crate::record::Record;
use crate::source::Source;

/// The reason why [`RecordSet::append`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The builder has no room for the next row. Take the builder's batch and append again.
    Full,
    /// The record set has no more rows.
    Done,
}

/// Zero or more batches of one partition, possibly with a truncated batch at the end.
pub struct RecordSet<S> {
    source: S,
    topic: Arc<str>,
    partition: i32,
    /// The position of the next batch.
    at: usize,
    next_offset: i64,
    to_offset: i64,
    aborted: AbortedTransactions,
    open: Option<OpenBatch>,
    partial_batch_bytes: Option<usize>,
    done: bool,
}

/// A checked and decompressed batch, some of whose rows are not appended yet.
struct OpenBatch {
    bytes: Vec<u8>,
    /// The remaining records are `bytes[at..end]`.
    at: usize,
    end: usize,
    left: usize,
    base_offset: i64,
    last_offset_delta: i32,
    /// The lowest valid offset delta of the next record.
    next_delta: i64,
    stamp: Stamp,
    /// The size of the batch in the record set, in bytes.
    size: usize,
}

impl<S: Source> RecordSet<S> {
    /// Reads the rows from `from_offset` to `to_offset` (exclusive), without rows of `aborted` transactions.
    pub fn new(
        source: S,
        topic: Arc<str>,
        partition: i32,
        from_offset: i64,
        to_offset: i64,
        aborted: AbortedTransactions,
    ) -> Self {
        Self {
            source,
            topic,
            partition,
            at: 0,
            next_offset: from_offset,
            to_offset,
            aborted,
            open: None,
            partial_batch_bytes: None,
            done: from_offset >= to_offset,
        }
    }

    pub fn topic(&self) -> &str {
        &self.topic
    }

    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// Returns the first offset that was neither appended nor skipped; at most `to_offset`.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Returns the size of the finished batches in bytes.
    pub fn consumed(&self) -> usize {
        self.at
    }

    /// Returns whether there are no more rows.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Returns the size of the truncated batch at the end of the record set; 0 if even its size is truncated.
    pub fn partial_batch_bytes(&self) -> Option<usize> {
        self.partial_batch_bytes
    }

    /// Returns the source. A record set that is done no longer reads its bytes.
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Appends rows to `builder` until it is full or no row is left. An error is returned again by the next call.
    pub fn append(&mut self, builder: &mut BatchBuilder) -> Result<Progress, Error> {
        builder.at_partition(&self.topic, self.partition);
        while !self.done {
            let Some(mut batch) = self.open.take() else {
                match self.open_next(builder) {
                    Ok(()) => continue,
                    Err(fault) => return Err(self.error(self.next_offset, fault)),
                }
            };
            builder.at_batch(batch.stamp);
            let outcome = self.drain(&mut batch, builder);
            match outcome {
                Ok(Progress::Done) => self.close(batch, builder),
                Ok(Progress::Full) => {
                    self.open = Some(batch);
                    return Ok(Progress::Full);
                }
                Err(error) => {
                    self.open = Some(batch);
                    return Err(error);
                }
            }
        }
        Ok(Progress::Done)
    }

    /// Opens the batch at `self.at` if it has rows to append, else skips it. A truncated batch ends the record set.
    fn open_next(&mut self, builder: &mut BatchBuilder) -> Result<(), Fault> {
        let here = self.source.size().saturating_sub(self.at);
        let mut start = [0; LOG_OVERHEAD];
        if !self.source.read(self.at, &mut start) {
            self.partial_batch_bytes = (here > 0).then_some(0);
            self.done = true;
            return Ok(());
        }
        let envelope = Envelope::parse(&start)?;
        let mut before_magic = [0; MAGIC_END];
        if self.source.read(self.at, &mut before_magic) {
            let [.., magic] = before_magic;
            check_magic(i8::from_be_bytes([magic]))?;
            if envelope.size < HEADER_LEN {
                return Err(Fault::corrupt(format!(
                    "a batch declares a size of {} bytes, which is less than its header",
                    envelope.size
                )));
            }
        }
        if envelope.size > here {
            self.partial_batch_bytes = Some(envelope.size);
            self.done = true;
            return Ok(());
        }

        let mut bytes = builder.buffer();
        let outcome = self.load(envelope.size, &mut bytes, builder);
        match outcome {
            Ok(Some(batch)) => self.open = Some(OpenBatch { bytes, ..batch }),
            Ok(None) => builder.recycle(bytes),
            Err(fault) => {
                builder.recycle(bytes);
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Checks the whole batch and decompresses it into `bytes`; if it has no row to append, skips it and returns None.
    fn load(
        &mut self,
        size: usize,
        bytes: &mut Vec<u8>,
        builder: &mut BatchBuilder,
    ) -> Result<Option<OpenBatch>, Fault> {
        if bytes.len() < size {
            bytes.resize(size, 0);
        }
        let whole = bytes.get_mut(..size).unwrap_or_default();
        if !self.source.read(self.at, whole) {
            return Err(Fault::corrupt("a batch is missing in the buffer"));
        }
        let Some((head, _)) = whole.split_first_chunk::<HEADER_LEN>() else {
            return Err(Fault::corrupt("a batch is shorter than its header"));
        };
        let header = BatchHeader::parse(head)?;
        // The magic is checked again in this copy, because the source may have changed since the first check.
        check_magic(head.get(MAGIC_END - 1).map_or(-1, |&magic| i8::from_be_bytes([magic])))?;
        if header.size != size {
            return Err(Fault::corrupt("a batch changed while it was read"));
        }
        // Check the CRC before any field is used, even if the batch is skipped: its last offset moves the position.
        let crc = crc32c::crc32c(whole.get(CRC_START..).unwrap_or_default());
        if crc != header.crc {
            return Err(Fault::corrupt(format!(
                "the batch at base offset {} has CRC {crc:08x}, expected {:08x}",
                header.base_offset, header.crc
            )));
        }
        if header.base_offset >= self.to_offset {
            self.next_offset = self.to_offset;
            self.done = true;
            return Ok(None);
        }
        let wanted = self.wants(&header, whole, &mut builder.decompressor)?;
        if !wanted || header.count == 0 || header.next_offset() <= self.next_offset {
            self.pass(header.next_offset(), size);
            return Ok(None);
        }
        let mut batch = OpenBatch {
            bytes: vec![],
            at: HEADER_LEN,
            end: size,
            left: header.count,
            base_offset: header.base_offset,
            last_offset_delta: header.last_offset_delta,
            next_delta: 0,
            size,
            stamp: Stamp {
                base_timestamp: header.base_timestamp,
                log_append_time: header.is_log_append_time().then_some(header.max_timestamp),
            },
        };
        if header.codec() != 0 {
            let mut unpacked = builder.buffer();
            let packed = whole.get(HEADER_LEN..).unwrap_or_default();
            let outcome = builder.decompressor.decompress(header.codec(), packed, &mut unpacked);
            std::mem::swap(bytes, &mut unpacked);
            builder.recycle(unpacked);
            (batch.at, batch.end) = (0, outcome?);
        }
        Ok(Some(batch))
    }

    /// Returns whether the batch has committed or non-transactional records; applies abort markers.
    fn wants(&mut self, header: &BatchHeader, whole: &[u8], decompressor: &mut Decompressor) -> Result<bool, Fault> {
        if header.producer_id >= 0 && !self.aborted.is_empty() {
            self.aborted.advance(header.next_offset() - 1);
            if header.is_control() {
                if is_abort_marker(header, whole, decompressor)? {
                    self.aborted.end(header.producer_id);
                }
            } else if header.is_transactional() && self.aborted.contains(header.producer_id) {
                return Ok(false);
            }
        }
        Ok(!header.is_control())
    }

    /// Appends the rows of `batch` to `builder`; returns Done if the batch or the range has no more rows.
    fn drain(&mut self, batch: &mut OpenBatch, builder: &mut BatchBuilder) -> Result<Progress, Error> {
        let mut rest = batch.bytes.get(batch.at..batch.end).unwrap_or_default();
        let (mut left, mut next_delta, mut next_offset) = (batch.left, batch.next_delta, self.next_offset);
        let mut outcome = Ok(Progress::Done);
        while left > 0 {
            let mut tail = rest;
            let record = match Record::parse(&mut tail) {
                Ok(record) => record,
                Err(reason) => {
                    outcome = Err((next_offset, Fault::corrupt(reason)));
                    break;
                }
            };
            let delta = i64::from(record.offset_delta);
            if delta < next_delta || record.offset_delta > batch.last_offset_delta {
                let reason =
                    format!("a record has offset delta {delta}, valid are {next_delta} to {}", batch.last_offset_delta);
                outcome = Err((next_offset, Fault::corrupt(reason)));
                break;
            }
            let offset = batch.base_offset + delta;
            if offset >= self.to_offset {
                self.done = true;
                next_offset = self.to_offset;
                break;
            }
            if offset >= next_offset {
                match builder.push(&record, offset, batch.stamp) {
                    Ok(true) => next_offset = offset + 1,
                    Ok(false) => {
                        outcome = Ok(Progress::Full);
                        break;
                    }
                    Err(fault) => {
                        outcome = Err((offset, fault));
                        break;
                    }
                }
            }
            rest = tail;
            left -= 1;
            next_delta = delta + 1;
        }
        if left == 0 && !rest.is_empty() {
            outcome = Err((next_offset, Fault::corrupt(format!("{} bytes follow the last record", rest.len()))));
        }
        batch.at = batch.end - rest.len();
        batch.left = left;
        batch.next_delta = next_delta;
        self.next_offset = next_offset;
        outcome.map_err(|(offset, fault)| {
            let reason = format!("{} (in the batch at base offset {})", fault.reason, batch.base_offset);
            self.error(offset, Fault { reason, ..fault })
        })
    }

    /// Closes a batch whose rows are all appended.
    fn close(&mut self, batch: OpenBatch, builder: &mut BatchBuilder) {
        self.pass(batch.base_offset + i64::from(batch.last_offset_delta) + 1, batch.size);
        builder.recycle(batch.bytes);
    }

    fn pass(&mut self, next_offset: i64, size: usize) {
        self.at += size;
        self.next_offset = next_offset.max(self.next_offset).min(self.to_offset);
        self.done |= self.next_offset >= self.to_offset;
    }

    fn error(&self, offset: i64, fault: Fault) -> Error {
        Error { kind: fault.kind, topic: self.topic.clone(), partition: self.partition, offset, reason: fault.reason }
    }
}

/// Returns whether a control batch aborts its producer's transaction. The key of the batch's first record has a version
/// and a type, which is 0 for an abort.
fn is_abort_marker(header: &BatchHeader, whole: &[u8], decompressor: &mut Decompressor) -> Result<bool, Fault> {
    if header.count == 0 {
        return Ok(false); // Compaction has removed the marker and kept the empty batch.
    }
    let mut unpacked = vec![];
    let mut records = whole.get(HEADER_LEN..).unwrap_or_default();
    if header.codec() != 0 {
        let len = decompressor.decompress(header.codec(), records, &mut unpacked)?;
        records = unpacked.get(..len).unwrap_or_default();
    }
    let record = Record::parse(&mut records).map_err(Fault::corrupt)?;
    match record.key {
        Some([_, _, high, low, ..]) => Ok(i16::from_be_bytes([*high, *low]) == 0),
        _ => Err(Fault::corrupt("a control record's key is shorter than four bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Limits;
    use crate::columns::Column;
    use crate::error::Kind;
    use crate::header::NewBatch;
    use crate::record::Headers;

    const MARKER: i16 = NewBatch::TRANSACTIONAL | 0x20;
    const COMMIT: &[u8] = &[0, 0, 0, 1];

    /// Returns a batch of `count` records with the same key.
    fn batch(base: i64, attributes: i16, producer_id: i64, count: i32, key: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        for offset_delta in 0..count {
            let headers = Headers::default();
            Record { timestamp_delta: 0, offset_delta, key: Some(key), value: None, headers }.write(&mut bytes);
        }
        let (base_timestamp, max_timestamp, epoch, base_sequence) = (7, 7, 0, 0);
        NewBatch { attributes, count, base_timestamp, max_timestamp, producer_id, epoch, base_sequence }
            .write(&mut bytes);
        // The CRC does not cover the base offset.
        bytes[..8].copy_from_slice(&base.to_be_bytes());
        bytes
    }

    /// Reads at most three rows at a time; returns the offsets and the position of the record set.
    fn read(bytes: &[u8], from: i64, to: i64) -> (Vec<i64>, Option<Error>, RecordSet<Vec<u8>>) {
        let limits = Limits { batch_rows: 3, batch_bytes: 1000, max_unpacked_bytes: 1000 };
        let mut builder = BatchBuilder::new(&[Column::Offset], limits).unwrap();
        let aborted = AbortedTransactions::new(vec![]);
        let mut records = RecordSet::new(bytes.to_vec(), "topic".into(), 4, from, to, aborted);
        let mut offsets = vec![];
        loop {
            let progress = records.append(&mut builder);
            let rows = builder.take().unwrap().data;
            offsets.extend_from_slice(&rows.child_data()[0].buffer::<i64>(0)[..rows.len()]);
            match progress {
                Ok(Progress::Full) => assert!(!records.is_done()),
                Ok(Progress::Done) => return (offsets, None, records),
                Err(error) => return (offsets, Some(error), records),
            }
        }
    }

    #[test]
    fn every_range_has_its_rows_and_ends_where_it_says() {
        let batches = [batch(2, 0, -1, 2, b""), batch(6, 0, -1, 5, b""), batch(11, MARKER, 1, 1, COMMIT)];
        let (bytes, stored) = (batches.concat(), [2, 3, 6, 7, 8, 9, 10]);
        for from in 0..14 {
            for to in 0..14 {
                let (offsets, error, records) = read(&bytes, from, to);
                let expected: Vec<_> = stored.iter().copied().filter(|offset| (from..to).contains(offset)).collect();
                assert_eq!((error, offsets), (None, expected), "{from} to {to}");
                assert_eq!(records.next_offset(), if from < to { from.max(12).min(to) } else { from });
                let begun = [2, 6, 11].iter().filter(|&&base| from < to && base < to).count();
                assert_eq!(records.consumed(), batches[..begun].concat().len(), "{from} to {to}");
                assert_eq!((records.is_done(), records.partial_batch_bytes()), (true, None));
                assert_eq!((records.topic(), records.partition()), ("topic", 4));
            }
        }
    }

    #[test]
    fn what_follows_the_range_is_not_read() {
        let one = batch(0, 0, -1, 2, b"");
        let bytes = [&one[..], &[0xff; HEADER_LEN]].concat();
        for to in [1, 2] {
            let (offsets, error, records) = read(&bytes, 0, to);
            assert_eq!((error, offsets.len(), records.next_offset()), (None, to as usize, to));
        }
        assert_eq!(read(&bytes, 0, 3).1.unwrap().offset, 2);
    }

    #[test]
    fn a_batch_that_claims_less_than_its_header_is_refused() {
        for size in [LOG_OVERHEAD as i32 + 14, HEADER_LEN as i32 - 1] {
            let mut bytes = batch(0, 0, -1, 1, b"");
            bytes[8..12].copy_from_slice(&(size - LOG_OVERHEAD as i32).to_be_bytes());
            let error = read(&bytes, 0, 100).1.unwrap();
            assert!(error.reason.contains(&format!("{size} bytes, which is less than its header")), "{error}");
        }
    }

    #[test]
    fn a_batch_without_records_is_not_decompressed() {
        for codec in 0..=4 {
            let empty = batch(5, codec, -1, 1, b"")[..HEADER_LEN].to_vec();
            let (offsets, error, records) = read(&whole(empty, 0), 0, 100);
            assert_eq!((offsets, error, records.next_offset()), (vec![], None, 6));
        }
    }

    #[test]
    fn offsets_ascend_up_to_the_last_one_of_the_header() {
        let three = batch(5, 0, -1, 3, b"");
        let record = (three.len() - HEADER_LEN) / 3;
        let two = &three[..HEADER_LEN + 2 * record];
        // The second record again.
        let twice = [two, &two[HEADER_LEN + record..]].concat();
        for (bytes, last_delta, rows, next_offset) in [
            (&three, 1, 2, None),
            (&three, 2, 3, Some(8)),
            (&three, 9, 3, Some(15)), // Compaction has removed the last records.
            (&twice, 9, 2, None),
        ] {
            let mut bytes = bytes.clone();
            bytes[23..27].copy_from_slice(&i32::to_be_bytes(last_delta));
            let (offsets, error, records) = read(&whole(bytes, 3), 0, 100);
            assert_eq!(offsets.len(), rows, "{last_delta}");
            assert_eq!(error.map_or(Ok(records.next_offset()), |error| Err(error.offset)), next_offset.ok_or(7));
        }
    }

    /// Makes `bytes` a batch of `count` records, with a correct length and CRC.
    fn whole(mut bytes: Vec<u8>, count: i32) -> Vec<u8> {
        let length = (bytes.len() - LOG_OVERHEAD) as i32;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[57..HEADER_LEN].copy_from_slice(&count.to_be_bytes());
        let crc = crc32c::crc32c(&bytes[CRC_START..]);
        bytes[17..CRC_START].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    #[test]
    fn a_batch_with_more_or_fewer_records_than_it_says_is_refused_behind_its_rows() {
        let bytes = batch(5, 0, -1, 3, b"");
        for (count, read_before) in [(2, vec![5, 6]), (4, vec![5, 6, 7])] {
            let (offsets, error, records) = read(&whole(bytes.clone(), count), 0, 100);
            let error = error.unwrap();
            assert_eq!((offsets, error.kind), (read_before.clone(), Kind::Corrupt), "{count}");
            assert_eq!((error.offset, &*error.topic, error.partition), (records.next_offset(), "topic", 4));
            assert!(error.reason.ends_with("(in the batch at base offset 5)"), "{error}");
        }
    }
}
