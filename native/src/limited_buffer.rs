//! The buffer for decompressed records, which grows as needed up to a limit.

use crate::error::{Fault, Kind};

/// The smallest size of a buffer. A buffer that is too small doubles.
pub const STEP: usize = 64 << 10;

/// Writes to the start of a `Vec` whose length includes the initialized free part, so reuse needs no clearing.
pub struct LimitedBuffer<'a> {
    bytes: &'a mut Vec<u8>,
    used: usize,
    limit: usize,
}

impl<'a> LimitedBuffer<'a> {
    /// Starts to write at the beginning of `bytes`; its content is overwritten.
    pub fn new(bytes: &'a mut Vec<u8>, limit: usize) -> Self {
        Self { bytes, used: 0, limit }
    }

    /// Returns the number of bytes that were written.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Returns the number of bytes that can still be written up to the limit.
    pub fn left(&self) -> usize {
        self.limit.saturating_sub(self.used)
    }

    /// Marks `len` bytes of the free part as written.
    pub fn advance(&mut self, len: usize) {
        self.used += len;
    }

    /// Returns the free part of the buffer, at least one byte; grows the buffer if the limit allows it.
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

    /// Returns exactly `len` free bytes.
    pub fn space_of(&mut self, len: usize) -> Result<&mut [u8], Fault> {
        self.split(len).map(|(_, space)| space)
    }

    /// Returns the written bytes, and `len` free bytes after them.
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

    /// Returns the fault of a batch that is larger than the limit.
    pub fn too_large(&self) -> Fault {
        too_large(self.limit)
    }

    /// Makes the buffer at least `len` bytes long; `len` must not be above the limit.
    fn grow_to(&mut self, len: usize) {
        let here = self.bytes.len();
        if len > here {
            let wanted = (here * 2).max(STEP).min(self.limit).max(len);
            // `resize` alone may double the capacity, even beyond the limit.
            self.bytes.reserve_exact(wanted - here);
            self.bytes.resize(wanted, 0);
        }
    }
}

fn too_large(limit: usize) -> Fault {
    Fault { kind: Kind::TooLarge, reason: format!("it decompresses to more than {limit} bytes (max_unpacked_bytes)") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills the buffer piece by piece; returns the lengths to which the buffer grew.
    fn growth(limit: usize, piece: usize) -> Vec<usize> {
        let (mut bytes, mut lengths) = (vec![], vec![]);
        let mut used = 0;
        while used < limit {
            let mut out = LimitedBuffer { bytes: &mut bytes, used, limit };
            let len = out.space().unwrap().len().min(piece);
            assert!(len > 0);
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
        for _ in 0..2 {
            LimitedBuffer::new(&mut bytes, 10 * STEP).space_of(7 * STEP).unwrap();
        }
        assert_eq!((bytes.len(), bytes.capacity()), (7 * STEP, 7 * STEP));
        // A larger reused buffer is written only up to the limit.
        let mut out = LimitedBuffer::new(&mut bytes, STEP);
        assert_eq!((out.space().unwrap().len(), out.left()), (STEP, STEP));
        assert_eq!(out.space_of(STEP + 1).unwrap_err().kind, Kind::TooLarge);
        assert_eq!(bytes.len(), 7 * STEP);
    }
}
