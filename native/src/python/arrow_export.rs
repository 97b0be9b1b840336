//! Exports Arrow data to Python without a copy, through the PyCapsule interface.

use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::ArrowError;
use arrow_schema::ffi::FFI_ArrowSchema;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::errors::arrow_error;

/// Exports a schema, or a type as a `Field`.
pub fn schema_capsule<'py, T>(py: Python<'py>, schema: T) -> PyResult<Bound<'py, PyCapsule>>
where
    FFI_ArrowSchema: TryFrom<T, Error = ArrowError>,
{
    let exported = FFI_ArrowSchema::try_from(schema).map_err(arrow_error)?;
    PyCapsule::new_with_value(py, exported, c"arrow_schema")
}

/// Exports an array, which keeps its buffers alive.
pub fn array_capsule<'py>(py: Python<'py>, data: &ArrayData) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArray::new(data), c"arrow_array")
}
