//! A record batch that is being filled, as the bytes that it will be sent as.

use crate::compress::Compressor;
use crate::header::{HEADER_LEN, NewBatch};
use crate::record::{Headers, Record};

/// What a row gives to its record.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
    pub timestamp: i64,
}

/// Who sends a batch, and as what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// -1: not idempotent.
    pub id: i64,
    pub epoch: i16,
    pub transactional: bool,
}

/// Room for the header, then records.
#[derive(Debug, Default)]
pub struct Filling {
    bytes: Vec<u8>,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl Filling {
    /// Records so far.
    pub fn count(&self) -> i32 {
        self.count
    }

    /// Bytes so far, with the header's; 0 while there is no record.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The next record.
    #[inline(always)]
    pub fn record<'a>(&self, content: &Content<'a>) -> Record<'a> {
        let base = if self.count == 0 { content.timestamp } else { self.base_timestamp };
        Record {
            // Wrapping is how a reader adds it up again.
            timestamp_delta: content.timestamp.wrapping_sub(base),
            offset_delta: self.count,
            key: content.key,
            value: content.value,
            headers: content.headers,
        }
    }

    /// Whether a record of `size` bytes may come into a batch of `most` bytes of records. The first may always.
    #[inline(always)]
    pub fn has_room(&self, size: usize, most: usize) -> bool {
        self.count == 0 || self.count < i32::MAX && self.bytes.len() - HEADER_LEN + size <= most
    }

    /// Appends a record that [`Filling::record`] gave; `spare` gives the buffer of a new batch.
    #[inline(always)]
    pub fn push(&mut self, record: &Record<'_>, timestamp: i64, spare: impl FnOnce() -> Vec<u8>) {
        if self.count == 0 {
            self.bytes = spare();
            self.bytes.clear();
            self.bytes.resize(HEADER_LEN, 0);
            (self.base_timestamp, self.max_timestamp) = (timestamp, timestamp);
        }
        record.write(&mut self.bytes);
        self.count += 1;
        self.max_timestamp = self.max_timestamp.max(timestamp);
    }

    /// Ends the batch: gives it whole, and what is left of its buffer, if anything. The next starts empty.
    pub fn seal(
        &mut self,
        producer: Producer,
        base_sequence: i32,
        compressor: &mut Compressor,
    ) -> Result<(Vec<u8>, Option<Vec<u8>>), String> {
        let filled = std::mem::take(self);
        let packed = compressor.compress(filled.bytes.get(HEADER_LEN..).unwrap_or_default())?;
        let (mut batch, rest) = match packed {
            None => (filled.bytes, None),
            Some(packed) => ([&[0; HEADER_LEN][..], packed].concat(), Some(filled.bytes)),
        };
        let transactional = if producer.transactional { NewBatch::TRANSACTIONAL } else { 0 };
        let header = NewBatch {
            attributes: compressor.codec().id() | transactional,
            count: filled.count,
            base_timestamp: filled.base_timestamp,
            max_timestamp: filled.max_timestamp,
            producer_id: producer.id,
            epoch: producer.epoch,
            base_sequence,
        };
        header.write(&mut batch);
        Ok((batch, rest))
    }
}
