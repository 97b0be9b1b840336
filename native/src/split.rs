//! Splits a record batch in two, if it is too large for its topic (Java's `ProducerBatch.split`).

use crate::codec::Decompressor;
use crate::compress::Compressor;
use crate::filling::{Content, Filling, Producer};
use crate::header::{BatchHeader, HEADER_LEN};
use crate::record::Record;

/// The limit on decompressed bytes. A high limit is safe, because this encoder has compressed the batch.
const MOST_UNPACKED: usize = 1 << 31;

/// Returns both halves, whose records keep their sequence numbers, and the bytes of all records before compression.
///
/// `batch` must have been compressed by `compressor`.
pub fn split(batch: &[u8], compressor: &mut Compressor) -> Result<([Vec<u8>; 2], usize), String> {
    let start = batch.first_chunk().ok_or("a batch without a header")?;
    let header = BatchHeader::parse(start).map_err(|fault| fault.reason)?;
    let packed = batch.get(HEADER_LEN..).unwrap_or_default();
    let mut unpacked = vec![];
    let records = match header.codec() {
        0 => packed,
        codec => {
            let fault = Decompressor::new(MOST_UNPACKED).decompress(codec, packed, &mut unpacked);
            let len = fault.map_err(|fault| fault.reason)?;
            unpacked.get(..len).unwrap_or_default()
        }
    };
    let first = header.count / 2;
    let (mut rest, mut halves) = (records, [Filling::default(), Filling::default()]);
    for number in 0..header.count {
        let record = Record::parse(&mut rest)?;
        let timestamp = header.base_timestamp.wrapping_add(record.timestamp_delta);
        let content = Content { key: record.key, value: record.value, headers: record.headers, timestamp };
        let [one, other] = &mut halves;
        let half = if number < first { one } else { other };
        half.push(&half.record(&content), timestamp, Vec::new);
    }
    let producer =
        Producer { id: header.producer_id, epoch: header.producer_epoch, transactional: header.is_transactional() };
    let [mut one, mut other] = halves;
    let (size, sequence) = (records.len(), header.base_sequence);
    let next = if sequence < 0 { sequence } else { after(sequence, one.count()) };
    let (one, _) = one.seal(producer, sequence, compressor)?;
    let (other, _) = other.seal(producer, next, compressor)?;
    Ok(([one, other], size))
}

/// Returns the sequence number after a batch (`DefaultRecordBatch.incrementSequence`): 2^31 - 1 is followed by 0.
pub fn after(sequence: i32, count: i32) -> i32 {
    ((i64::from(sequence) + i64::from(count)) & i64::from(i32::MAX)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::Codec;
    use crate::record::Headers;

    #[test]
    fn a_sequence_goes_on_at_0_after_the_largest() {
        assert_eq!(after(0, 5), 5);
        assert_eq!(after(i32::MAX - 5, 5), i32::MAX);
        assert_eq!(after(i32::MAX - 5, 6), 0);
        assert_eq!(after(i32::MAX, i32::MAX), i32::MAX - 1);
    }

    #[test]
    fn the_second_half_has_the_sequence_after_the_first() {
        let mut compressor = Compressor::new(Codec::None);
        for (id, sequence, expected) in
            [(-1, -1, [-1, -1]), (0, 0, [0, 1]), (0, 7, [7, 8]), (0, i32::MAX, [i32::MAX, 0])]
        {
            let mut filling = Filling::default();
            // The second record is older than the first, and the third record is newer.
            for timestamp in [20, 10, 30] {
                let content = Content { key: None, value: Some(b"v"), headers: Headers::default(), timestamp };
                filling.push(&filling.record(&content), timestamp, Vec::new);
            }
            let producer = Producer { id, epoch: 0, transactional: false };
            let (whole, _) = filling.seal(producer, sequence, &mut compressor).unwrap();
            let (halves, size) = split(&whole, &mut compressor).unwrap();
            let headers = halves.each_ref().map(|half| BatchHeader::parse(half.first_chunk().unwrap()).unwrap());
            assert_eq!(size, whole.len() - HEADER_LEN);
            assert_eq!(headers.map(|header| header.base_sequence), expected);
            let times = headers.map(|header| (header.count, header.base_timestamp, header.max_timestamp));
            assert_eq!(times, [(1, 20, 20), (2, 10, 30)]);
        }
    }
}
