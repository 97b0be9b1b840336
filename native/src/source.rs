//! Where a record set's bytes come from.

/// Bytes that are copied out batch by batch, never borrowed: the owner may be a Python buffer that is not ours to lock.
pub trait Source {
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `into` from position `at`; false, with nothing promised about `into`, if that many bytes are not there.
    fn read(&self, at: usize, into: &mut [u8]) -> bool;
}

impl<T: AsRef<[u8]>> Source for T {
    fn len(&self) -> usize {
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
