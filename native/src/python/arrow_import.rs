//! Arrow data of Python where it lies, without a copy, by the PyCapsule interface.
//!
//! The C data interface gives addresses without lengths: how long a buffer is follows from the column's type, its rows
//! and its last offset. That a producer keeps to this is the interface's contract, which every consumer has to trust.
//! Nothing else is trusted: what the buffers hold is read through [`crate::arrays`], where each look is checked.

use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::DataType;
use arrow_schema::ffi::FFI_ArrowSchema;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arrays::Validity;
use crate::refusal::Refusal;

/// No column with 32-bit offsets has more rows; it also keeps sums and products of lengths small.
const MOST_ROWS: usize = 1 << 31;
const OFFSET_WIDTH: usize = 4;

/// An array that another library made, which keeps its buffers alive and unchanged until this is dropped.
pub struct Imported {
    kind: DataType,
    array: FFI_ArrowArray,
}

impl Imported {
    /// Takes over the array that `object` exports.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let export = intern!(object.py(), "__arrow_c_array__");
        if !object.hasattr(export)? {
            let kind = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("an Arrow record batch is wanted, but {kind} has no {export}()")));
        }
        let (schema, array) = object.call_method0(export)?.extract()?;
        Self::take(&schema, &array)
    }

    /// Moves the array out of its capsule, which then has nothing to release. The schema stays in its capsule.
    fn take(schema: &Bound<'_, PyCapsule>, array: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
        let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<FFI_ArrowArray>();
        // SAFETY: capsules of these names hold these structs, aligned and initialised (PyCapsule interface), and live as
        // long as the caller's references to them. Nobody else uses the structs meanwhile, because no code of Python's
        // runs before they are used here for the last time. A struct that somebody has moved out before is still
        // initialised, without a release callback.
        #[allow(unsafe_code)]
        let (schema, array) = unsafe { (schema.as_ref(), FFI_ArrowArray::from_raw(array.as_ptr())) };
        if schema.release().is_none() || array.is_released() {
            return Err(PyValueError::new_err("the exported Arrow array was already taken by another consumer"));
        }
        match DataType::try_from(schema) {
            Ok(kind) => Ok(Self { kind, array }),
            Err(error) => Err(PyValueError::new_err(error.to_string())),
        }
    }

    pub fn column(&self) -> Result<Column<'_>, Refusal> {
        Column::new(&self.kind, &self.array)
    }
}

/// An array, or a part of a nested one, with its type.
#[derive(Clone, Copy)]
pub struct Column<'a> {
    pub kind: &'a DataType,
    array: &'a FFI_ArrowArray,
}

impl<'a> Column<'a> {
    fn new(kind: &'a DataType, array: &'a FFI_ArrowArray) -> Result<Self, Refusal> {
        match array.len().checked_add(array.offset()) {
            Some(end) if end <= MOST_ROWS => Ok(Self { kind, array }),
            _ => {
                let (rows, first) = (array.len(), array.offset());
                Err(Refusal::Malformed(format!("a column claims {rows} rows from row {first} of its buffers on")))
            }
        }
    }

    pub fn rows(&self) -> usize {
        self.array.len()
    }

    /// Which row of the buffers is the first of the column.
    pub fn first(&self) -> usize {
        self.array.offset()
    }

    /// The part number `i` of a nested column, whose type is `kind`.
    pub fn child(&self, i: usize, kind: &'a DataType) -> Result<Self, Refusal> {
        if i >= self.array.num_children() {
            return Err(Refusal::Malformed(format!("a column of {} has no part {i}", self.kind)));
        }
        Self::new(kind, self.array.child(i))
    }

    pub fn validity(&self) -> Validity<'a> {
        let bits = self.buffer(0, self.end().div_ceil(8));
        Validity((self.array.null_count() != 0 && !bits.is_empty()).then_some(bits))
    }

    /// The values of a column with values of `width` bytes.
    pub fn values(&self, width: usize) -> &'a [u8] {
        self.buffer(1, self.end() * width)
    }

    /// The offsets of a column with 32-bit offsets: one more than rows.
    pub fn offsets(&self) -> &'a [u8] {
        // A column without rows may have none, wherever its address leads to.
        let offsets = if self.rows() == 0 { 0 } else { self.end() + 1 };
        self.buffer(1, offsets * OFFSET_WIDTH)
    }

    /// What the offsets of a column of bytes point into.
    pub fn data(&self) -> &'a [u8] {
        let last = self.offsets().last_chunk().map_or(0, |&last| i32::from_le_bytes(last));
        self.buffer(2, usize::try_from(last).unwrap_or(0))
    }

    fn end(&self) -> usize {
        self.first() + self.rows()
    }

    /// `len` bytes of the buffer number `i`; none if it is not there.
    fn buffer(&self, i: usize, len: usize) -> &'a [u8] {
        if i >= self.array.num_buffers() {
            return &[];
        }
        let address = self.array.buffer(i);
        if address.is_null() {
            return &[];
        }
        // SAFETY: the address is not null, and `len` is what the C data interface makes the buffer at least as long as,
        // see the three callers; it is far below `isize::MAX`. By the same contract the buffer is initialised, and stays
        // as it is until the array is released, which `'a`, a borrow of the `Imported`, does not outlive.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(address, len)
        }
    }
}
