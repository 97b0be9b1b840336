//! Encodes rows into record batches: chooses the rows' partitions, seals full batches, and refuses rows.

use std::collections::BTreeMap;

use crate::arrays::{Binary, Headers, Int32, Outside};
use crate::compress::{Codec, Compressor};
use crate::filling::{Content, Filling, Producer};
use crate::header::HEADER_LEN;
use crate::murmur2::partition_of;
use crate::record::HeaderWriter;
use crate::refusal::Refusal;
use crate::split::{after, split};

/// The largest allowed sizes. A batch's length and number of records have 32 bits, and a codec may enlarge a batch.
const MOST_BYTES: usize = 1 << 30;
/// The largest allowed number of partitions. All partitions up to the highest used partition need memory.
const MOST_PARTITIONS: usize = 1 << 20;
/// The number of buffers that are kept for the next batches, and the largest size of such a buffer.
const SPARES: usize = 8;
const SPARE_MOST: usize = 4 << 20;

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub codec: Codec,
    /// Maximum bytes of a batch's records; a larger record is a batch of its own.
    pub batch_bytes: usize,
    /// Maximum bytes of a batch with a single record, before compression.
    pub record_bytes: usize,
    /// The first sticky partition for records without a key, modulo the number of partitions.
    pub sticky: usize,
}

/// Rows of one topic.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    pub rows: usize,
    pub values: Binary<'a>,
    pub keys: Option<Binary<'a>>,
    /// Explicit partitions, null if the partitioner chooses.
    pub chosen: Option<Int32<'a>>,
    pub headers: Option<Headers<'a>>,
    /// The create time of all rows, in milliseconds since 1970.
    pub timestamp: i64,
}

/// A whole batch, ready for a Produce request.
#[derive(Debug, PartialEq, Eq)]
pub struct Sealed {
    pub topic: i64,
    pub partition: usize,
    pub count: i32,
    pub bytes: Vec<u8>,
}

pub struct Encoder {
    settings: Settings,
    topics: BTreeMap<i64, Topic>,
    headers: HeaderWriter,
    sealer: Sealer,
}

struct Topic {
    number: i64,
    /// The topic's number of partitions in the last call of `append`; `used` ends at the highest used partition.
    partitions: usize,
    used: Vec<Partition>,
    /// The partition for records without a key, until its batch is sealed.
    sticky: usize,
}

#[derive(Default)]
struct Partition {
    filling: Filling,
    sequence: i32,
}

/// Seals batches, and keeps each sealed batch until it is taken.
struct Sealer {
    producer: Producer,
    compressor: Compressor,
    sealed: Vec<Sealed>,
    spares: Vec<Vec<u8>>,
    /// Bytes of the open batches and of the batches in `sealed`.
    pending: usize,
}

impl Encoder {
    pub fn new(settings: Settings) -> Result<Self, Refusal> {
        for (name, bytes) in [("batch_bytes", settings.batch_bytes), ("record_bytes", settings.record_bytes)] {
            if !(1..=MOST_BYTES).contains(&bytes) {
                return Err(Refusal::Malformed(format!("{name} must be 1 to {MOST_BYTES}, not {bytes}")));
            }
        }
        let sealer = Sealer {
            producer: Producer { id: -1, epoch: -1, transactional: false },
            compressor: Compressor::new(settings.codec),
            sealed: vec![],
            spares: vec![],
            pending: 0,
        };
        Ok(Self { settings, topics: BTreeMap::new(), headers: HeaderWriter::default(), sealer })
    }

    /// Sets the producer of the batches that are sealed after this call, and restarts all sequences at 0.
    pub fn identify(&mut self, producer: Producer) {
        self.sealer.producer = producer;
        for partition in self.topics.values_mut().flat_map(|topic| &mut topic.used) {
            partition.sequence = 0;
        }
    }

    /// Returns the bytes of the open batches, and of sealed batches that were not taken.
    pub fn pending(&self) -> usize {
        self.sealer.pending
    }

    /// Returns the sealed batches in the order of sealing; with `all`, seals the open batches first.
    pub fn take(&mut self, all: bool) -> Result<Vec<Sealed>, Refusal> {
        if all {
            for topic in self.topics.values_mut() {
                for partition in 0..topic.used.len() {
                    topic.seal(partition, &mut self.sealer)?;
                }
            }
        }
        self.sealer.pending -= self.sealer.sealed.iter().map(|sealed| sealed.bytes.len()).sum::<usize>();
        Ok(std::mem::take(&mut self.sealer.sealed))
    }

    /// Splits a taken batch into two batches. After a split, new batches have at most half of its bytes.
    pub fn split(&mut self, batch: &[u8]) -> Result<[Vec<u8>; 2], Refusal> {
        let (halves, size) = split(batch, &mut self.sealer.compressor).map_err(Refusal::Codec)?;
        self.settings.batch_bytes = self.settings.batch_bytes.min((size / 2).max(1));
        Ok(halves)
    }

    /// Takes back the buffer of a taken batch, for reuse.
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        self.sealer.recycle(bytes);
    }

    /// Appends rows to the batches of topic `number`, which has `partitions` partitions.
    pub fn append(&mut self, number: i64, partitions: usize, rows: &Rows<'_>) -> Result<(), Refusal> {
        if !(1..=MOST_PARTITIONS).contains(&partitions) {
            return Err(Refusal::Malformed(format!(
                "topic {number} must have 1 to {MOST_PARTITIONS} partitions, not {partitions}"
            )));
        }
        if rows.timestamp < 0 {
            return Err(Refusal::Malformed(format!("timestamp_ms must be 0 or more, not {}", rows.timestamp)));
        }
        let Self { settings, topics, headers, sealer } = self;
        let topic =
            topics.entry(number).or_insert_with(|| Topic { number, partitions, used: vec![], sticky: settings.sticky });
        topic.partitions = partitions;
        topic.sticky %= partitions;
        for row in 0..rows.rows {
            let outside = |name| {
                move |Outside| Refusal::Malformed(format!("topic {number}, row {row}: {name} are not in their buffers"))
            };
            let value = rows.values.get(row).map_err(outside("values"))?;
            let key = match &rows.keys {
                Some(keys) => keys.get(row).map_err(outside("keys"))?,
                None => None,
            };
            let fixed = match &rows.chosen {
                Some(chosen) => topic.chosen(chosen.get(row).map_err(outside("chosen partitions"))?, row)?,
                None => None,
            };
            let fixed = fixed.or_else(|| key.map(|key| partition_of(key, partitions)));
            if let Some(array) = &rows.headers {
                headers.clear();
                for header in array.get(row).map_err(outside("headers"))? {
                    let (key, value) = header.map_err(outside("headers"))?;
                    let key = key.ok_or_else(|| {
                        Refusal::Malformed(format!(
                            "topic {number}, row {row}: a header has no key, which Kafka requires"
                        ))
                    })?;
                    headers.push(key, value);
                    if headers.headers().len() > settings.record_bytes {
                        break; // The record is too large already, and a malformed list could be very long.
                    }
                }
            }
            let content = Content { key, value, headers: headers.headers(), timestamp: rows.timestamp };
            topic.push(&content, fixed, row, settings, sealer)?;
        }
        headers.clear();
        Ok(())
    }
}

impl Topic {
    /// Returns the explicit partition of a row, if any.
    fn chosen(&self, partition: Option<i32>, row: usize) -> Result<Option<usize>, Refusal> {
        let Some(partition) = partition else { return Ok(None) };
        match usize::try_from(partition) {
            Ok(partition) if partition < self.partitions => Ok(Some(partition)),
            _ => {
                let (topic, partitions) = (self.number, self.partitions);
                Err(Refusal::UnknownPartition { topic, partition, partitions, row })
            }
        }
    }

    /// Appends a record to the batch of partition `fixed` or, without it, of the sticky partition.
    #[inline(always)]
    fn push(
        &mut self,
        content: &Content<'_>,
        fixed: Option<usize>,
        row: usize,
        settings: &Settings,
        sealer: &mut Sealer,
    ) -> Result<(), Refusal> {
        loop {
            let number = fixed.unwrap_or(self.sticky);
            let Some(partition) = self.used.get_mut(number) else {
                self.used.resize_with(number + 1, Partition::default);
                continue;
            };
            let filling = &mut partition.filling;
            let record = filling.record(content);
            let size = record.size();
            if HEADER_LEN + size > settings.record_bytes {
                let (topic, size, limit) = (self.number, HEADER_LEN + size, settings.record_bytes);
                return Err(Refusal::RecordTooLarge { topic, partition: number, row, size, limit });
            }
            if filling.has_room(size, settings.batch_bytes) {
                let before = filling.size();
                filling.push(&record, content.timestamp, || sealer.spares.pop().unwrap_or_default());
                sealer.pending += filling.size() - before;
                return Ok(());
            }
            // After the sticky batch is sealed, the record goes to the next partition, whose batch may be full too.
            self.seal(number, sealer)?;
        }
    }

    /// Seals the batch of a partition, if it has any records.
    fn seal(&mut self, number: usize, sealer: &mut Sealer) -> Result<(), Refusal> {
        let Some(partition) = self.used.get_mut(number).filter(|partition| partition.filling.count() > 0) else {
            return Ok(());
        };
        sealer.seal(self.number, number, partition)?;
        if number == self.sticky {
            self.sticky = (number + 1) % self.partitions;
        }
        Ok(())
    }
}

impl Sealer {
    fn seal(&mut self, topic: i64, number: usize, partition: &mut Partition) -> Result<(), Refusal> {
        let (count, before) = (partition.filling.count(), partition.filling.size());
        let base_sequence = if self.producer.id < 0 { -1 } else { partition.sequence };
        let (bytes, rest) =
            partition.filling.seal(self.producer, base_sequence, &mut self.compressor).map_err(Refusal::Codec)?;
        self.compressor.shrink();
        partition.sequence = after(partition.sequence, count);
        if let Some(rest) = rest {
            self.recycle(rest);
        }
        self.pending = self.pending + bytes.len() - before;
        self.sealed.push(Sealed { topic, partition: number, count, bytes });
        Ok(())
    }

    fn recycle(&mut self, bytes: Vec<u8>) {
        if self.spares.len() < SPARES && bytes.capacity() <= SPARE_MOST {
            self.spares.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrays::Validity;
    use crate::header::BatchHeader;

    /// A column's buffers.
    struct Buffers {
        validity: Vec<u8>,
        offsets: Vec<u8>,
        data: Vec<u8>,
    }

    impl Buffers {
        fn of(rows: &[Option<&[u8]>]) -> Self {
            let mut validity = vec![0; rows.len().div_ceil(8)];
            let (mut offsets, mut data) = (vec![0; 4], vec![]);
            for (i, row) in rows.iter().enumerate() {
                validity[i / 8] |= u8::from(row.is_some()) << (i % 8);
                data.extend_from_slice(row.unwrap_or_default());
                offsets.extend((data.len() as i32).to_le_bytes());
            }
            Self { validity, offsets, data }
        }

        fn array(&self) -> Binary<'_> {
            Binary::new(Validity(Some(&self.validity)), 0, &self.offsets, &self.data)
        }
    }

    fn encoder(batch_bytes: usize) -> Encoder {
        Encoder::new(Settings { codec: Codec::None, batch_bytes, record_bytes: 1000, sticky: 5 }).unwrap()
    }

    fn rows(rows: usize, values: &Buffers) -> Rows<'_> {
        Rows { rows, values: values.array(), keys: None, chosen: None, headers: None, timestamp: 1_700_000_000_000 }
    }

    fn places(sealed: &[Sealed]) -> Vec<(i64, usize, i32)> {
        sealed.iter().map(|batch| (batch.topic, batch.partition, batch.count)).collect()
    }

    fn base_sequence(batch: &Sealed) -> i32 {
        i32::from_be_bytes(batch.bytes[53..57].try_into().unwrap())
    }

    #[test]
    fn a_full_batch_is_sealed_and_the_sticky_partition_moves_on() {
        let values = Buffers::of(&[Some(&[0; 91][..]); 8]);
        let mut encoder = encoder(300); // Three records of 100 bytes.
        encoder.append(0, 3, &rows(8, &values)).unwrap();
        assert_eq!(encoder.pending(), 3 * 61 + 800);
        assert_eq!(places(&encoder.take(false).unwrap()), [(0, 2, 3), (0, 0, 3)]);
        assert_eq!(encoder.pending(), 61 + 200);
        assert_eq!(places(&encoder.take(true).unwrap()), [(0, 1, 2)]);
        encoder.append(0, 3, &rows(1, &values)).unwrap();
        assert_eq!(places(&encoder.take(true).unwrap()), [(0, 2, 1)]);
        assert_eq!(encoder.take(true).unwrap(), []);
    }

    #[test]
    fn sequences_count_records_by_partition_and_start_again_with_a_producer() {
        let values = Buffers::of(&[Some(&[0; 93][..]); 3]);
        let chosen: Vec<_> = [1i32, 0, 1].iter().flat_map(|partition| partition.to_le_bytes()).collect();
        let mut rows = rows(3, &values);
        rows.chosen = Some(Int32::new(Validity(None), 0, &chosen));
        let mut encoder = encoder(1000);
        let sequences = |encoder: &mut Encoder| -> Vec<_> {
            encoder.append(0, 2, &rows).unwrap();
            encoder.take(true).unwrap().iter().map(base_sequence).collect()
        };
        assert_eq!(sequences(&mut encoder), [-1, -1]);
        encoder.identify(Producer { id: 7, epoch: 0, transactional: true });
        assert_eq!(sequences(&mut encoder), [0, 0]);
        assert_eq!(sequences(&mut encoder), [1, 2]);
        encoder.identify(Producer { id: 0, epoch: 1, transactional: true });
        assert_eq!(sequences(&mut encoder), [0, 0]);
    }

    #[test]
    fn a_batch_is_split_under_the_sequences_that_its_records_have() {
        let rows_of = |n: usize| Buffers::of(&(0..n).map(|_| Some(&[7u8; 93][..])).collect::<Vec<_>>());
        for name in ["none", "gzip", "snappy", "lz4", "zstd"] {
            let codec = Codec::parse(name, None).unwrap();
            let settings = Settings { codec, batch_bytes: 1000, record_bytes: 1000, sticky: 0 };
            let mut encoder = Encoder::new(settings).unwrap();
            encoder.identify(Producer { id: 7, epoch: 3, transactional: true });
            let (two, seven) = (rows_of(2), rows_of(7));
            encoder.append(0, 1, &rows(2, &two)).unwrap();
            encoder.take(true).unwrap();
            encoder.append(0, 1, &rows(7, &seven)).unwrap();
            let whole = encoder.take(true).unwrap().remove(0);
            let halves = encoder.split(&whole.bytes).unwrap();
            let seen = halves.clone().map(|half| {
                let header = BatchHeader::parse(half.first_chunk().unwrap()).unwrap();
                assert_eq!((header.producer_id, header.producer_epoch, header.is_transactional()), (7, 3, true));
                assert_eq!((header.size, header.codec()), (half.len(), codec.id()));
                (header.base_sequence, header.count, header.next_offset())
            });
            assert_eq!(seen, [(2, 3, 3), (5, 4, 4)], "{name}");
            // The next batch is not larger than the first half, and has the next sequence number.
            encoder.append(0, 1, &rows(7, &seven)).unwrap();
            let next = encoder.take(true).unwrap();
            assert_eq!(next.iter().map(|batch| batch.count).collect::<Vec<_>>(), [3, 3, 1]);
            assert_eq!(base_sequence(&next[0]), 9);
            assert!(encoder.split(&whole.bytes[..80]).is_err());
        }
    }

    fn int32(values: &[i32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// Empty headers take no bytes in Arrow, so a row may have more headers than fit in any record.
    #[test]
    fn headers_are_read_up_to_the_limit_of_a_record() {
        let values = Buffers::of(&[Some(b"v")]);
        let (ends, lists) = (int32(&[&[0][..], &[1; 5000]].concat()), int32(&[0, 5000]));
        let no_ends = int32(&[0; 5001]);
        let keys = Binary::new(Validity(None), 0, &ends, b"k");
        let contents = Binary::new(Validity(None), 0, &no_ends, b"");
        let headers = Headers::new(Validity(None), 0, &lists, keys, contents);
        let refused = encoder(1000).append(0, 1, &Rows { headers: Some(headers), ..rows(1, &values) });
        let Err(Refusal::RecordTooLarge { size, .. }) = refused else { panic!("{refused:?}") };
        assert!((1001..1100).contains(&size), "{size}");
    }

    #[test]
    fn a_buffer_serves_again_unless_it_is_large() {
        let values = Buffers::of(&[Some(b"v")]);
        let mut encoder = encoder(1000);
        for (capacity, serves) in [(SPARE_MOST, true), (SPARE_MOST + 1, false)] {
            encoder.recycle(Vec::with_capacity(capacity));
            encoder.append(0, 1, &rows(1, &values)).unwrap();
            assert_eq!(encoder.take(true).unwrap()[0].bytes.capacity() >= SPARE_MOST, serves);
        }
    }
}
