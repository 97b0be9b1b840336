//! The source of a record set's bytes.

/// Bytes that are copied batch by batch, and not borrowed, because another thread can change a Python buffer.
pub trait Source {
    /// Returns the number of bytes.
    fn size(&self) -> usize;

    /// Fills `into` with the bytes from `at` on. Returns false, with `into` unspecified, if there are fewer bytes.
    fn read(&self, at: usize, into: &mut [u8]) -> bool;
}

impl<T: AsRef<[u8]>> Source for T {
    fn size(&self) -> usize {
        self.as_ref().len()
    }

    fn read(&self, at: usize, into: &mut [u8]) -> bool {
        let Some(bytes) = self.as_ref().get(at..).and_then(|tail| tail.get(..into.len())) else {
            return false;
        };
        into.copy_from_slice(bytes);
        true
    }
}
