//! The memory of decoded records, with a limit for each record and for a batch.

use super::fault::Fault;

/// The limit of a record if none is given.
pub const DEFAULT_LIMIT: usize = 64 << 20;
/// The largest allowed limit of a record or a batch. With this limit, a batch and one more record stay below 2^31 bytes
/// and items, the limit of Arrow's offsets.
pub const MOST: usize = (1 << 30) - 1;

/// The memory that a record may still take. The bits of each row of the record's columns count, and the bytes of each
/// text. A repeated field counts each time. A list's item counts as at least a byte, which also limits decoding time.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    left: u64,
}

impl Budget {
    /// `bytes`: at most [`MOST`].
    pub fn new(bytes: usize) -> Self {
        let limit = 8 * bytes.min(MOST) as u64;
        Self { limit, left: limit }
    }

    /// Takes this many bits.
    #[inline(always)]
    pub fn take(&mut self, bits: u64) -> Result<(), Fault> {
        match self.left.checked_sub(bits) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(self.exceeded()),
        }
    }

    #[inline(always)]
    pub fn take_text(&mut self, bytes: usize) -> Result<(), Fault> {
        self.take((bytes as u64).saturating_mul(8))
    }

    /// Checks that there is room for `count` items of `bits` bits each; the bits are taken when the items are read.
    pub fn check(&self, bits: u64, count: usize) -> Result<(), Fault> {
        if bits.saturating_mul(count as u64) > self.left { Err(self.exceeded()) } else { Ok(()) }
    }

    /// Returns the bytes that are left.
    pub fn left(&self) -> usize {
        (self.left / 8) as usize
    }

    /// Returns the bits that were taken.
    pub fn taken(&self) -> u64 {
        self.limit - self.left
    }

    #[cold]
    fn exceeded(&self) -> Fault {
        Fault::new(format!(
            "the record takes more than {} bytes decoded, the limit (max.decoded.bytes)",
            self.limit / 8
        ))
    }
}
