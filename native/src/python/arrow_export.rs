//! Exports Arrow data to Python without a copy, through the PyCapsule interface.

use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field};
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

/// Exports a type.
pub fn type_capsule<'py>(py: Python<'py>, kind: &DataType) -> PyResult<Bound<'py, PyCapsule>> {
    schema_capsule(py, Field::new("", kind.clone(), true))
}

/// What `__arrow_c_array__` returns: a schema and an array.
pub type Exported<'py> = (Bound<'py, PyCapsule>, Bound<'py, PyCapsule>);

/// Exports an array, which keeps its buffers alive, with its schema.
///
/// `requested`: the schema that the consumer prefers. A producer may ignore this schema; the consumer then casts.
pub fn exported<'py>(
    py: Python<'py>,
    schema: Bound<'py, PyCapsule>,
    data: &ArrayData,
    requested: Option<Bound<'py, PyAny>>,
) -> PyResult<Exported<'py>> {
    drop(requested);
    Ok((schema, PyCapsule::new_with_value(py, FFI_ArrowArray::new(data), c"arrow_array")?))
}
