//! A record batch that is being filled, already in its wire format.

use crate::compress::Compressor;
use crate::header::{HEADER_LEN, NewBatch};
use crate::record::{Headers, Record};

/// The parts of a record that come from its row.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
    pub timestamp: i64,
}

/// The producer's identity in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// The producer id; -1 if the producer is not idempotent.
    pub id: i64,
    pub epoch: i16,
    pub transactional: bool,
}

/// The bytes of an open batch: space for the header, then the records.
#[derive(Debug, Default)]
pub struct Filling {
    bytes: Vec<u8>,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl Filling {
    /// Returns the number of records.
    pub fn count(&self) -> i32 {
        self.count
    }

    /// Returns the number of bytes including the header; 0 without a record.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the next record of the batch, with its deltas.
    #[inline(always)]
    pub fn record<'a>(&self, content: &Content<'a>) -> Record<'a> {
        let base = if self.count == 0 { content.timestamp } else { self.base_timestamp };
        Record {
            // A reader adds the delta with wrapping arithmetic too, so the sum is exact.
            timestamp_delta: content.timestamp.wrapping_sub(base),
            offset_delta: self.count,
            key: content.key,
            value: content.value,
            headers: content.headers,
        }
    }

    /// Returns whether a batch of at most `most` bytes of records has room for `size` more. A first record always fits.
    #[inline(always)]
    pub fn has_room(&self, size: usize, most: usize) -> bool {
        self.count == 0 || self.bytes.len() - HEADER_LEN + size <= most
    }

    /// Appends a record that [`Filling::record`] has returned; `spare` returns the buffer for a new batch.
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

    /// Seals the batch and starts an empty one. Returns the whole batch and, after compression, its buffer for reuse.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::Codec;
    use crate::header::BatchHeader;

    #[test]
    fn a_batch_counts_from_its_first_record_and_knows_its_newest() {
        let mut filling = Filling::default();
        let producer = Producer { id: 3, epoch: 2, transactional: true };
        let mut compressor = Compressor::new(Codec::None);
        // The second batch is like the first: nothing of the sealed batch is left.
        for _ in 0..2 {
            assert_eq!((filling.count(), filling.size()), (0, 0));
            for (timestamp, delta) in [(20, 0), (10, -10), (30, 10), (25, 5)] {
                let content = Content { key: Some(b"k"), value: None, headers: Headers::default(), timestamp };
                let (count, before) = (filling.count(), filling.size().max(HEADER_LEN));
                let record = filling.record(&content);
                assert_eq!((record.offset_delta, record.timestamp_delta), (count, delta));
                filling.push(&record, timestamp, || vec![7; 100]);
                assert_eq!((filling.count(), filling.size()), (count + 1, before + record.size()));
            }
            let (bytes, rest) = filling.seal(producer, 9, &mut compressor).unwrap();
            let header = BatchHeader::parse(bytes.first_chunk().unwrap()).unwrap();
            assert_eq!((header.count, header.size, header.base_sequence), (4, bytes.len(), 9));
            assert_eq!((header.base_timestamp, header.max_timestamp), (20, 30));
            assert_eq!((header.producer_id, header.producer_epoch, header.is_transactional()), (3, 2, true));
            assert_eq!(rest, None);
        }
    }

    #[test]
    fn a_record_fits_up_to_the_limit_and_the_first_one_always() {
        let mut filling = Filling::default();
        assert!(filling.has_room(1000, 1));
        let content = Content { key: None, value: Some(&[0; 91]), headers: Headers::default(), timestamp: 0 };
        filling.push(&filling.record(&content), 0, Vec::new);
        assert_eq!(filling.size(), HEADER_LEN + 100);
        assert!(filling.has_room(100, 200) && !filling.has_room(101, 200) && !filling.has_room(100, 100));
    }
}
