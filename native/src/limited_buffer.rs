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

    fn grow_to(&mut self, len: usize) {
        if len > self.bytes.len() {
            self.bytes.resize(len.max(self.bytes.len() * 2).max(STEP), 0);
        }
    }
}

fn too_large(limit: usize) -> Fault {
    Fault { kind: Kind::TooLarge, reason: format!("it unpacks to more than {limit} bytes (max_unpacked_bytes)") }
}
