//! The buffer that a batch is unpacked into: it grows as needed, up to a limit.

use crate::error::{Fault, Kind};

/// What a buffer starts with and grows by, until doubling takes over.
pub const STEP: usize = 64 << 10;

/// Writes to the front of a `Vec` that is longer than what was written, so that its free part is clear already and a
/// buffer that served before is not cleared again.
pub struct LimitedBuffer<'a> {
    bytes: &'a mut Vec<u8>,
    used: usize,
    limit: usize,
}

impl<'a> LimitedBuffer<'a> {
    /// Starts at the front of `bytes`, whose content is of no meaning.
    pub fn new(bytes: &'a mut Vec<u8>, limit: usize) -> Self {
        Self { bytes, used: 0, limit }
    }

    /// Bytes that were filled.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Bytes up to the limit.
    pub fn left(&self) -> usize {
        self.limit.saturating_sub(self.used)
    }

    /// `len` bytes of the free part were filled.
    pub fn advance(&mut self, len: usize) {
        self.used += len;
    }

    /// The free part of the buffer, at least one byte, grown as long as the limit lets it.
    pub fn space(&mut self) -> Result<&mut [u8], Fault> {
        if self.used >= self.limit {
            return Err(too_large(self.limit));
        }
        if self.used >= self.bytes.len() {
            self.grow_to(self.used + 1);
        }
        let end = self.bytes.len().min(self.limit);
        self.bytes.get_mut(self.used..end).ok_or_else(|| too_large(self.limit))
    }

    /// Exactly `len` free bytes.
    pub fn space_of(&mut self, len: usize) -> Result<&mut [u8], Fault> {
        self.split(len).map(|(_, space)| space)
    }

    /// What was filled, and `len` free bytes after it.
    pub fn split(&mut self, len: usize) -> Result<(&[u8], &mut [u8]), Fault> {
        let end = self.used.saturating_add(len);
        if end > self.limit {
            return Err(too_large(self.limit));
        }
        self.grow_to(end);
        let (before, space) = self.bytes.split_at_mut(self.used);
        let space = space.get_mut(..len).ok_or_else(|| too_large(self.limit))?;
        Ok((before, space))
    }

    /// The fault of a batch that goes on at the limit.
    pub fn too_large(&self) -> Fault {
        too_large(self.limit)
    }

    /// Makes the buffer at least `len` bytes long, which is no more than the limit.
    fn grow_to(&mut self, len: usize) {
        let here = self.bytes.len();
        if len > here {
            let wanted = (here * 2).max(STEP).min(self.limit).max(len);
            // `resize` alone would round up to the double of what there is, beyond the limit too.
            self.bytes.reserve_exact(wanted - here);
            self.bytes.resize(wanted, 0);
        }
    }
}

fn too_large(limit: usize) -> Fault {
    Fault { kind: Kind::TooLarge, reason: format!("it unpacks to more than {limit} bytes (max_unpacked_bytes)") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills the buffer piece by piece; gives the lengths that it grew to.
    fn growth(limit: usize, piece: usize) -> Vec<usize> {
        let (mut bytes, mut lengths) = (vec![], vec![]);
        let mut used = 0;
        while used < limit {
            let mut out = LimitedBuffer { bytes: &mut bytes, used, limit };
            let len = out.space().unwrap().len().min(piece);
            used += len;
            if lengths.last() != Some(&bytes.len()) {
                lengths.push(bytes.len());
            }
            assert!(bytes.capacity() <= limit.max(used), "{} bytes are taken for {used} of {limit}", bytes.capacity());
        }
        let mut out = LimitedBuffer { bytes: &mut bytes, used, limit };
        assert_eq!(out.space().unwrap_err().kind, Kind::TooLarge);
        assert_eq!(out.space_of(1).unwrap_err().kind, Kind::TooLarge);
        lengths
    }

    #[test]
    fn it_grows_by_doubling_and_takes_no_memory_beyond_the_limit() {
        assert_eq!(growth(5 * STEP, 1000), [STEP, 2 * STEP, 4 * STEP, 5 * STEP]);
        assert_eq!(growth(1000, 999), [1000]);
        assert_eq!(growth(STEP, STEP), [STEP]);
        assert_eq!(growth(STEP + 1, STEP), [STEP, STEP + 1]);
    }

    #[test]
    fn a_large_part_is_given_at_once_and_a_buffer_serves_again() {
        let mut bytes = vec![];
        LimitedBuffer::new(&mut bytes, 10 * STEP).space_of(3 * STEP).unwrap();
        assert_eq!((bytes.len(), bytes.capacity()), (3 * STEP, 3 * STEP));
        LimitedBuffer::new(&mut bytes, 10 * STEP).space_of(7 * STEP).unwrap();
        assert_eq!((bytes.len(), bytes.capacity()), (7 * STEP, 7 * STEP));
        // A larger buffer that served before is used up to the limit, and no further.
        let mut out = LimitedBuffer::new(&mut bytes, STEP);
        assert_eq!((out.space().unwrap().len(), out.left()), (STEP, STEP));
        assert_eq!(out.space_of(STEP + 1).unwrap_err().kind, Kind::TooLarge);
        assert_eq!(bytes.len(), 7 * STEP);
    }
}
