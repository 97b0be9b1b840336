//! A Python buffer as a [`Source`].

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};

use crate::source::Source;

/// A part of a `bytes` or `bytearray`, kept alive and, for a `bytearray`, kept from being resized.
pub struct Buffer {
    keeper: Option<Py<PyAny>>,
    address: usize,
    len: usize,
}

impl Buffer {
    /// Borrows `bytes` and `bytearray` as they are; anything else that has the buffer protocol is copied, because
    /// Python 3.10's stable ABI gives no access to it.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            return Ok(Self::of(bytes));
        }
        // Fails for what is no buffer; while it lives, a bytearray cannot be resized.
        let view = PyMemoryView::from(object)?;
        if let Ok(array) = object.cast_exact::<PyByteArray>() {
            let (address, len) = (array.data().expose_provenance(), array.len());
            return Ok(Self { keeper: Some(view.into_any().unbind()), address, len });
        }
        let copy = object.py().get_type::<PyBytes>().call1((view,))?;
        Ok(Self::of(copy.cast::<PyBytes>()?))
    }

    fn of(bytes: &Bound<'_, PyBytes>) -> Self {
        let content = bytes.as_bytes();
        Self {
            keeper: Some(bytes.clone().into_any().unbind()),
            address: content.as_ptr().expose_provenance(),
            len: content.len(),
        }
    }

    /// The part from `start` to `end`; None if it is not there.
    pub fn slice(self, start: usize, end: usize) -> Option<Self> {
        (start <= end && end <= self.len).then(|| Self { address: self.address + start, len: end - start, ..self })
    }

    /// Lets go of the Python object. Nothing can be read any more.
    pub fn release(&mut self) {
        (self.keeper, self.len) = (None, 0);
    }
}

impl Source for Buffer {
    fn len(&self) -> usize {
        self.len
    }

    #[allow(unsafe_code)]
    fn read(&self, at: usize, into: &mut [u8]) -> bool {
        if at.checked_add(into.len()).is_none_or(|end| end > self.len) {
            return false;
        }
        // SAFETY: `address..address + len` lies in the buffer of `keeper`, which is alive while `len` is not 0 and which
        // is a `bytes` or has an export, so it neither moves nor shrinks; `at..at + into.len()` was just checked to lie
        // in it; `into` is ours alone. No reference to Python's memory is made: if another thread writes to a bytearray
        // meanwhile, against the contract, the copy is torn and the CRC, which is taken of the copy, tells.
        unsafe {
            let from = std::ptr::with_exposed_provenance::<u8>(self.address + at);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
        true
    }
}
