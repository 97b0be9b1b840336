//! A Python buffer as a [`Source`].

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};

use crate::source::Source;

/// A part of a `bytes` or `bytearray`; keeps the object alive, and prevents a resize of the object.
pub struct Buffer {
    keeper: Option<Py<PyAny>>,
    address: usize,
    len: usize,
}

impl Buffer {
    /// Borrows a `bytes` or `bytearray`; copies any other object with the buffer protocol, because Python 3.10's stable
    /// ABI gives no access to its memory.
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            return Ok(Self::of(bytes));
        }
        // Fails if the object is not a buffer. While the view exists, a bytearray cannot be resized.
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

    /// Borrows the part of `object` from `start` to `end`; None: up to the end of the buffer.
    pub fn part(object: &Bound<'_, PyAny>, start: usize, end: Option<usize>) -> PyResult<Self> {
        let whole = Self::new(object)?;
        let (len, end) = (whole.len, end.unwrap_or(whole.len));
        if start > end || end > len {
            let reason = format!("start={start}, end={end} is no part of a buffer of {len} bytes");
            return Err(PyValueError::new_err(reason));
        }
        Ok(Self { address: whole.address + start, len: end - start, ..whole })
    }

    /// Releases the Python object; after that nothing can be read.
    pub fn release(&mut self) {
        (self.keeper, self.len) = (None, 0);
    }
}

impl Source for Buffer {
    fn size(&self) -> usize {
        self.len
    }

    #[allow(unsafe_code)]
    fn read(&self, at: usize, into: &mut [u8]) -> bool {
        if at.checked_add(into.len()).is_none_or(|end| end > self.len) {
            return false;
        }
        // SAFETY: `address..address + len` lies in the buffer of `keeper`. `keeper` is alive while `len` is not 0, and
        // it is a `bytes` or has an exported view, so its memory neither moves nor shrinks. The check above ensures
        // that `at..at + into.len()` lies in it, and no other code accesses `into`. No reference to Python's memory is
        // created: if another thread writes to a bytearray during the copy, against the contract, the copy mixes old
        // and new bytes, and the CRC check of the copy fails.
        unsafe {
            let from = std::ptr::with_exposed_provenance::<u8>(self.address + at);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
        true
    }
}
