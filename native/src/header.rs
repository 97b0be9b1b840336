//! The header of a RecordBatch v2 (Kafka's `DefaultRecordBatch`): its fields, its CRC, refused formats.

use crate::error::{Fault, Kind};

/// The length of the header; the records follow.
pub const HEADER_LEN: usize = 61;
/// The length of the fields `baseOffset` and `batchLength`, which the value of `batchLength` does not include.
pub const LOG_OVERHEAD: usize = 12;
/// The end of `magic`, which determines the format.
pub const MAGIC_END: usize = 17;
/// The first byte that the CRC covers.
pub const CRC_START: usize = 21;
/// The shortest message of magic 0 and 1 (`LegacyRecord.RECORD_OVERHEAD_V0`), which bounds `batchLength`.
const LEGACY_OVERHEAD: usize = 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    /// The size of the whole batch in bytes, including the header.
    pub size: usize,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub count: usize,
}

/// The first bytes of a batch of any format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub base_offset: i64,
    /// The size in bytes that the batch or message declares.
    pub size: usize,
}

impl Envelope {
    pub fn parse(bytes: &[u8; LOG_OVERHEAD]) -> Result<Self, Fault> {
        let base_offset = i64::from_be_bytes(at(bytes, 0));
        let length = i32::from_be_bytes(at(bytes, 8));
        match usize::try_from(length) {
            Ok(length) if length >= LEGACY_OVERHEAD => Ok(Self { base_offset, size: length + LOG_OVERHEAD }),
            _ => Err(Fault::corrupt(format!("a batch declares a length of {length} bytes"))),
        }
    }
}

/// Returns an error unless `magic` is 2.
pub fn check_magic(magic: i8) -> Result<(), Fault> {
    match magic {
        2 => Ok(()),
        0 | 1 => Err(Fault {
            kind: Kind::OldFormat,
            reason: format!("message format {magic} (before Kafka 0.11); read it with engine=librdkafka"),
        }),
        _ => Err(Fault::corrupt(format!("unknown message format {magic}"))),
    }
}

impl BatchHeader {
    /// Parses the header, with the checks that are possible before the CRC is verified.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, Fault> {
        let envelope = Envelope::parse(&at(bytes, 0))?;
        let header = Self {
            base_offset: envelope.base_offset,
            size: envelope.size,
            crc: u32::from_be_bytes(at(bytes, 17)),
            attributes: i16::from_be_bytes(at(bytes, 21)),
            last_offset_delta: i32::from_be_bytes(at(bytes, 23)),
            base_timestamp: i64::from_be_bytes(at(bytes, 27)),
            max_timestamp: i64::from_be_bytes(at(bytes, 35)),
            producer_id: i64::from_be_bytes(at(bytes, 43)),
            producer_epoch: i16::from_be_bytes(at(bytes, 51)),
            base_sequence: i32::from_be_bytes(at(bytes, 53)),
            count: usize::try_from(i32::from_be_bytes(at(bytes, 57)))
                .map_err(|_| Fault::corrupt("a batch declares a negative number of records"))?,
        };
        if header.base_offset < 0 || header.last_offset_delta < 0 || header.last_offset().is_none() {
            return Err(Fault::corrupt(format!(
                "a batch declares base offset {} and last offset delta {}, which is not possible",
                header.base_offset, header.last_offset_delta
            )));
        }
        Ok(header)
    }

    fn last_offset(&self) -> Option<i64> {
        // i64::MAX is not allowed, because the next offset must be representable too.
        self.base_offset.checked_add(i64::from(self.last_offset_delta)).filter(|&last| last < i64::MAX)
    }

    /// Returns the offset after the batch, even if compaction has removed its last record.
    pub fn next_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta)).saturating_add(1)
    }

    pub fn codec(&self) -> i16 {
        self.attributes & 0x07
    }

    pub fn is_log_append_time(&self) -> bool {
        self.attributes & 0x08 != 0
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & 0x20 != 0
    }
}

/// The header fields of a batch that a producer has filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBatch {
    /// The codec and the flags.
    pub attributes: i16,
    pub count: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    /// The producer id; -1 if the producer is not idempotent, with epoch and base sequence -1.
    pub producer_id: i64,
    pub epoch: i16,
    pub base_sequence: i32,
}

impl NewBatch {
    /// The flag of a transactional batch; a broker appends a batch without the flag as non-transactional.
    pub const TRANSACTIONAL: i16 = 0x10;

    /// Writes the header for a Produce request into `batch`, whose records must be in place.
    pub fn write(&self, batch: &mut [u8]) {
        let length = batch.len().saturating_sub(LOG_OVERHEAD) as i32;
        put(batch, 0, 0i64.to_be_bytes()); // The broker assigns the base offset.
        put(batch, 8, length.to_be_bytes());
        put(batch, 12, (-1i32).to_be_bytes()); // The broker sets the partition leader epoch.
        put(batch, MAGIC_END - 1, [2]);
        put(batch, 21, self.attributes.to_be_bytes());
        put(batch, 23, (self.count - 1).to_be_bytes());
        put(batch, 27, self.base_timestamp.to_be_bytes());
        put(batch, 35, self.max_timestamp.to_be_bytes());
        put(batch, 43, self.producer_id.to_be_bytes());
        put(batch, 51, self.epoch.to_be_bytes());
        put(batch, 53, self.base_sequence.to_be_bytes());
        put(batch, 57, self.count.to_be_bytes());
        let crc = crc32c::crc32c(batch.get(CRC_START..).unwrap_or_default());
        put(batch, 17, crc.to_be_bytes());
    }
}

fn put<const N: usize>(batch: &mut [u8], start: usize, field: [u8; N]) {
    if let Some(place) = batch.get_mut(start..).and_then(|tail| tail.first_chunk_mut()) {
        *place = field;
    }
}

/// Returns a field of the header; callers pass positions that lie in it.
fn at<const N: usize, const M: usize>(bytes: &[u8; N], start: usize) -> [u8; M] {
    bytes.get(start..).and_then(|tail| tail.first_chunk::<M>()).copied().unwrap_or([0; M])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(base: i64, length: i32, delta: i32, count: i32) -> [u8; HEADER_LEN] {
        let mut bytes = [0u8; HEADER_LEN];
        bytes[..8].copy_from_slice(&base.to_be_bytes());
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[23..27].copy_from_slice(&delta.to_be_bytes());
        bytes[57..].copy_from_slice(&count.to_be_bytes());
        bytes
    }

    #[test]
    fn fields_are_where_the_protocol_puts_them() {
        let mut bytes = header(7, 100, 4, 3);
        bytes[21..23].copy_from_slice(&0x3cu16.to_be_bytes());
        let parsed = BatchHeader::parse(&bytes).unwrap();
        assert_eq!((parsed.base_offset, parsed.size, parsed.next_offset(), parsed.count), (7, 112, 12, 3));
        assert_eq!(parsed.codec(), 4);
        assert!(parsed.is_log_append_time() && parsed.is_transactional() && parsed.is_control());
    }

    #[test]
    fn a_new_batch_parses_as_it_was_written() {
        let mut bytes = [0x55; HEADER_LEN + 9];
        let new = NewBatch {
            attributes: 4 | NewBatch::TRANSACTIONAL,
            count: 3,
            base_timestamp: 1_700_000_000_000,
            max_timestamp: 1_700_000_000_007,
            producer_id: 4000,
            epoch: 5,
            base_sequence: 77,
        };
        new.write(&mut bytes);
        let parsed = BatchHeader::parse(bytes.first_chunk().unwrap()).unwrap();
        assert_eq!((parsed.base_offset, parsed.size, parsed.next_offset(), parsed.count), (0, 70, 3, 3));
        assert_eq!((parsed.codec(), parsed.is_transactional(), parsed.is_control()), (4, true, false));
        assert_eq!((parsed.base_timestamp, parsed.max_timestamp), (new.base_timestamp, new.max_timestamp));
        assert_eq!((parsed.producer_id, parsed.producer_epoch, parsed.base_sequence), (4000, 5, 77));
        assert_eq!((parsed.crc, &bytes[12..17]), (crc32c::crc32c(&bytes[CRC_START..]), &[255, 255, 255, 255, 2][..]));
    }

    #[test]
    fn impossible_claims_are_refused() {
        for bytes in [
            header(0, -1, 0, 0),
            header(0, 13, 0, 0),
            header(-1, 100, 0, 0),
            header(0, 100, -1, 0),
            header(0, 100, 0, -1),
            header(i64::MAX - 3, 100, 3, 0),
        ] {
            assert_eq!(BatchHeader::parse(&bytes).unwrap_err().kind, Kind::Corrupt);
        }
        assert!(BatchHeader::parse(&header(i64::MAX - 4, 100, 3, 0)).is_ok());
    }

    #[test]
    fn old_and_unknown_formats_are_told_apart() {
        assert!(check_magic(2).is_ok());
        assert_eq!(check_magic(0).unwrap_err().kind, Kind::OldFormat);
        assert_eq!(check_magic(1).unwrap_err().kind, Kind::OldFormat);
        assert_eq!(check_magic(3).unwrap_err().kind, Kind::Corrupt);
        assert_eq!(check_magic(-1).unwrap_err().kind, Kind::Corrupt);
    }

    #[test]
    fn every_flag_is_a_bit_of_its_own() {
        let of = |attributes: i16| {
            let mut bytes = header(0, 14, 0, 0);
            bytes[21..23].copy_from_slice(&attributes.to_be_bytes());
            let header = BatchHeader::parse(&bytes).unwrap();
            (header.codec(), header.is_log_append_time(), header.is_transactional(), header.is_control())
        };
        assert_eq!(of(0), (0, false, false, false));
        assert_eq!(of(0x08 | 1), (1, true, false, false));
        assert_eq!(of(0x10 | 2), (2, false, true, false));
        assert_eq!(of(0x20 | 7), (7, false, false, true));
        assert_eq!(of(!0x38), (7, false, false, false));
    }
}
