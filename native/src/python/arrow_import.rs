//! Imports Arrow data from Python without a copy, through the PyCapsule interface.
//!
//! The C data interface gives addresses without lengths. The length of a buffer follows from the column's type, its
//! number of rows and its last offset. By the interface's contract every consumer has to trust the producer in these
//! figures. Nothing else is trusted: [`crate::arrays`] checks every access to the buffers.

use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::DataType;
use arrow_schema::ffi::FFI_ArrowSchema;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arrays::Validity;
use crate::refusal::Refusal;

/// The limit on rows, as for 32-bit offsets. Within this limit, sums and products of lengths do not overflow.
const MOST_ROWS: usize = 1 << 31;
const OFFSET_WIDTH: usize = 4;
const LARGE_OFFSET_WIDTH: usize = 8;

/// An array of another library, which keeps its buffers alive and unchanged until this value is dropped.
pub struct Imported {
    kind: DataType,
    array: FFI_ArrowArray,
}

impl Imported {
    /// Imports the array that `object` exports.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let export = intern!(object.py(), "__arrow_c_array__");
        if !object.hasattr(export)? {
            let kind = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "an Arrow array or record batch is wanted, but {kind} has no {export}()"
            )));
        }
        let (schema, array) = object.call_method0(export)?.extract()?;
        Self::take(&schema, &array)
    }

    /// Moves the array out of its capsule, so that the capsule releases nothing. The schema stays in its capsule.
    fn take(schema: &Bound<'_, PyCapsule>, array: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
        let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<FFI_ArrowArray>();
        // SAFETY: capsules with these names contain these structs, aligned and initialized (PyCapsule interface), and
        // live as long as the caller's references to them. No other code accesses the structs in this time, because no
        // Python code runs before their last use here. A struct that another consumer has moved out is still
        // initialized, without a release callback.
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

/// Imports the type that `object` exports.
pub fn imported_type(object: &Bound<'_, PyAny>) -> PyResult<DataType> {
    let capsule: Bound<'_, PyCapsule> = object.call_method0(intern!(object.py(), "__arrow_c_schema__"))?.extract()?;
    let schema = capsule.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    // SAFETY: a capsule with this name contains this struct, aligned and initialized (PyCapsule interface), and lives as
    // long as the reference `capsule`. No Python code runs before the struct's last use here.
    #[allow(unsafe_code)]
    let schema = unsafe { schema.as_ref() };
    if schema.release().is_none() {
        return Err(PyValueError::new_err("the exported Arrow type was already taken by another consumer"));
    }
    DataType::try_from(schema).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// An array or a child of a nested array, with its type.
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

    /// Returns the position of the column's first row in the buffers.
    pub fn first(&self) -> usize {
        self.array.offset()
    }

    /// Returns child `i` of a nested column; its type is `kind`.
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

    /// Returns the values of a column with values of `width` bytes.
    pub fn values(&self, width: usize) -> &'a [u8] {
        self.buffer(1, self.end() * width)
    }

    /// Returns the values of a column of booleans.
    pub fn bits(&self) -> &'a [u8] {
        self.buffer(1, self.end().div_ceil(8))
    }

    /// Returns the offsets of a column with 32-bit offsets: one more offset than rows.
    pub fn offsets(&self) -> &'a [u8] {
        // A column without rows may have no offsets, even if the address is not null.
        let offsets = if self.rows() == 0 { 0 } else { self.end() + 1 };
        self.buffer(1, offsets * OFFSET_WIDTH)
    }

    /// Returns the data of a binary column, to which its offsets refer.
    pub fn data(&self) -> &'a [u8] {
        let last = self.offsets().last_chunk().map_or(0, |&last| i32::from_le_bytes(last));
        self.buffer(2, usize::try_from(last).unwrap_or(0))
    }

    /// Returns the offsets of a column with 64-bit offsets: one more offset than rows.
    pub fn large_offsets(&self) -> &'a [u8] {
        let offsets = if self.rows() == 0 { 0 } else { self.end() + 1 };
        self.buffer(1, offsets * LARGE_OFFSET_WIDTH)
    }

    /// Returns the data of a binary column with 64-bit offsets.
    pub fn large_data(&self) -> &'a [u8] {
        let last = self.large_offsets().last_chunk().map_or(0, |&last| i64::from_le_bytes(last));
        self.buffer(2, usize::try_from(last).unwrap_or(0))
    }

    fn end(&self) -> usize {
        self.first() + self.rows()
    }

    /// Returns `len` bytes of buffer `i`; no bytes if the buffer does not exist.
    fn buffer(&self, i: usize, len: usize) -> &'a [u8] {
        if i >= self.array.num_buffers() {
            return &[];
        }
        let address = self.array.buffer(i);
        if address.is_null() {
            return &[];
        }
        // No producer has a larger buffer, so a larger length comes from a wrong offset.
        let len = len.min(isize::MAX as usize);
        // SAFETY: the address is not null. By the C data interface, the buffer has at least `len` bytes (see the
        // callers), and `len` is at most `isize::MAX`. By the same contract, the buffer is initialized and does not
        // change until the array is released. The lifetime `'a`, a borrow of the `Imported`, ends before that.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(address, len)
        }
    }
}
