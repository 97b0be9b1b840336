//! Reads only the headers of a record set's batches, before any batch is verified or decoded.

use crate::header::LOG_OVERHEAD;
use crate::source::Source;

/// Bytes of a batch up to the end of `lastOffsetDelta`, the last field that is read here.
const HEAD_LEN: usize = 27;
const MAGIC: i8 = 2;

/// The contents of a record set according to its headers. No CRC is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The offset after the last complete batch, at least the requested position.
    pub next_offset: i64,
    /// The size of the first batch if it is truncated, 12 if even its size is truncated, else 0.
    pub cut_off: usize,
    /// The size of the complete batches in bytes.
    pub size: usize,
    /// The number of complete batches.
    pub batches: usize,
    /// The number of offsets in the complete batches, including those before the requested position.
    pub offsets: i64,
    /// The leader epoch in which the last complete batch was written; -1: none.
    pub leader_epoch: i32,
}

/// The fields of a batch header that are read here.
struct Head {
    base_offset: i64,
    leader_epoch: i32,
    last_offset: i64,
}

/// Reads headers up to the first batch that is truncated or malformed.
pub fn scan(source: &impl Source, position: i64) -> Scan {
    let mut scan = Scan { next_offset: position, cut_off: 0, size: 0, batches: 0, offsets: 0, leader_epoch: -1 };
    let len = source.size();
    if (1..LOG_OVERHEAD).contains(&len) {
        scan.cut_off = LOG_OVERHEAD;
        return scan;
    }
    let mut first = 0;
    while let Some(size) = batch_size(source, scan.size) {
        if scan.size + size > len {
            scan.cut_off = if scan.size == 0 { size } else { 0 };
            break;
        }
        let Some(head) = head(source, scan.size, size) else { break };
        first = if scan.batches == 0 { head.base_offset } else { first };
        scan.next_offset = scan.next_offset.max(head.last_offset + 1);
        scan.offsets = head.last_offset + 1 - first;
        scan.leader_epoch = head.leader_epoch;
        scan.size += size;
        scan.batches += 1;
    }
    scan
}

/// Returns the size that the batch at `at` declares; None if the size is truncated or negative.
#[inline(always)]
fn batch_size(source: &impl Source, at: usize) -> Option<usize> {
    let mut start = [0; LOG_OVERHEAD];
    if !source.read(at, &mut start) {
        return None;
    }
    let [_, _, _, _, _, _, _, _, length @ ..] = start;
    Some(usize::try_from(i32::from_be_bytes(length)).ok()? + LOG_OVERHEAD)
}

/// Reads the header of the batch at `at`; None if its magic is not 2, or its offsets are negative or exceed 64 bits.
#[inline(always)]
fn head(source: &impl Source, at: usize, size: usize) -> Option<Head> {
    let mut bytes = [0; HEAD_LEN];
    if size < HEAD_LEN || !source.read(at, &mut bytes) {
        return None;
    }
    let (base_offset, rest) = bytes.split_first_chunk()?;
    let (_length, rest) = rest.split_first_chunk::<4>()?;
    let (leader_epoch, rest) = rest.split_first_chunk()?;
    let (magic, _) = rest.split_first_chunk()?;
    let delta = bytes.last_chunk()?;
    if i8::from_be_bytes(*magic) != MAGIC {
        return None;
    }
    let base_offset = i64::from_be_bytes(*base_offset);
    let delta = i32::from_be_bytes(*delta);
    // Below the maximum, so that the next offset also fits into 64 bits.
    let last_offset = base_offset.checked_add(i64::from(delta)).filter(|&last| last < i64::MAX)?;
    (base_offset >= 0 && delta >= 0).then(|| Head {
        base_offset,
        leader_epoch: i32::from_be_bytes(*leader_epoch),
        last_offset,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a batch with these header fields, and `body` bytes after them.
    fn batch(base: i64, delta: i32, epoch: i32, magic: i8, body: usize) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_LEN + body];
        bytes[..8].copy_from_slice(&base.to_be_bytes());
        bytes[8..12].copy_from_slice(&((HEAD_LEN + body - LOG_OVERHEAD) as i32).to_be_bytes());
        bytes[12..16].copy_from_slice(&epoch.to_be_bytes());
        bytes[16] = magic.to_be_bytes()[0];
        bytes[23..27].copy_from_slice(&delta.to_be_bytes());
        bytes
    }

    fn none(position: i64) -> Scan {
        Scan { next_offset: position, cut_off: 0, size: 0, batches: 0, offsets: 0, leader_epoch: -1 }
    }

    #[test]
    fn the_scan_ends_at_a_batch_that_no_broker_stores() {
        let sound = batch(3, 1, 0, 2, 9);
        let after = Scan { next_offset: 5, cut_off: 0, size: sound.len(), batches: 1, offsets: 2, leader_epoch: 0 };
        let mut short = batch(5, 0, 0, 2, 0);
        short[8..12].copy_from_slice(&14i32.to_be_bytes());
        let mut negative = batch(5, 0, 0, 2, 0);
        negative[8..12].copy_from_slice(&(-12i32).to_be_bytes());
        for wrong in [
            batch(5, 0, 0, 1, 9),
            batch(5, 0, 0, -1, 9),
            batch(-1, 0, 0, 2, 9),
            batch(5, -1, 0, 2, 9),
            batch(i64::MAX - 2, 2, 0, 2, 9),
            short,
            negative,
        ] {
            assert_eq!(scan(&[&sound[..], &wrong, &sound].concat(), 0), after);
            assert_eq!(scan(&wrong, 4), none(4));
        }
        assert_eq!(scan(&batch(5, 0, 0, 2, 0), 0).batches, 1);
        let last = batch(i64::MAX - 2, 1, 0, 2, 9);
        assert_eq!(scan(&last, 0).next_offset, i64::MAX);
    }
}
