//! The Python classes of the encoders, and `EncodedValues`.

use std::collections::HashMap;

use arrow_data::ArrayData;
use arrow_schema::DataType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::arrow_export::{Exported, exported, type_capsule};
use super::arrow_import::{Column, Imported, imported_type};
use super::decoders::{ProtobufSchema, malformed, refuse};
use super::errors::{arrow_error, unfit};
use crate::refusal::Refusal;
use crate::values::cells::Cells;
use crate::values::encode::{Encode, Failure};
use crate::{avro, json, protobuf};

#[pyclass(module = "kafkagroup_native", frozen)]
pub struct AvroEncoder {
    inner: avro::write::encoder::Encoder,
}

#[pymethods]
impl AvroEncoder {
    #[new]
    #[pyo3(signature = (schema, *, schema_id))]
    fn new(schema: &str, schema_id: Option<u32>) -> PyResult<Self> {
        Ok(Self { inner: avro::write::encoder::Encoder::new(schema, schema_id).map_err(refuse)? })
    }

    fn check(&self, kind: &Bound<'_, PyAny>) -> PyResult<()> {
        check(kind, &self.inner)
    }

    fn encode(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<EncodedValues> {
        encoded(py, values, &self.inner)
    }
}

#[pyclass(module = "kafkagroup_native", frozen)]
pub struct ProtobufEncoder {
    inner: protobuf::write::encoder::Encoder,
}

#[pymethods]
impl ProtobufEncoder {
    #[new]
    #[pyo3(signature = (schema, *, schema_id, imports=None, message=None))]
    fn new(
        schema: ProtobufSchema,
        schema_id: Option<u32>,
        imports: Option<HashMap<String, String>>,
        message: Option<&str>,
    ) -> PyResult<Self> {
        let inner = protobuf::write::encoder::Encoder::new(schema.source(imports), message, schema_id);
        Ok(Self { inner: inner.map_err(refuse)? })
    }

    fn check(&self, kind: &Bound<'_, PyAny>) -> PyResult<()> {
        check(kind, &self.inner)
    }

    fn encode(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<EncodedValues> {
        encoded(py, values, &self.inner)
    }
}

#[pyclass(module = "kafkagroup_native", frozen)]
pub struct JsonEncoder {
    inner: json::encoder::Encoder,
}

#[pymethods]
impl JsonEncoder {
    #[new]
    #[pyo3(signature = (*, schema_id))]
    fn new(schema_id: Option<u32>) -> Self {
        Self { inner: json::encoder::Encoder::new(schema_id) }
    }

    fn check(&self, kind: &Bound<'_, PyAny>) -> PyResult<()> {
        check(kind, &self.inner)
    }

    fn encode(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<EncodedValues> {
        encoded(py, values, &self.inner)
    }
}

fn check(kind: &Bound<'_, PyAny>, encoder: &impl Encode) -> PyResult<()> {
    encoder.check(&imported_type(kind)?).map_err(refuse)
}

fn encoded(py: Python<'_>, values: &Bound<'_, PyAny>, encoder: &impl Encode) -> PyResult<EncodedValues> {
    let imported = Imported::new(values)?;
    let column = imported.column().map_err(malformed)?;
    let (cells, rows) = (cells(column, 0).map_err(malformed)?, column.rows());
    match py.detach(|| encoder.encode(&cells, rows)) {
        Ok(inner) => Ok(EncodedValues { inner }),
        Err(Failure::Value { row, fault }) => Err(unfit(py, row, &fault.to_string())),
        Err(Failure::Type(fault)) => Err(refuse(fault)),
        Err(Failure::Outside) => Err(PyValueError::new_err("the offsets of the values point outside their buffers")),
        Err(Failure::TooLarge) => Err(PyValueError::new_err("the encoded values have more than 2^31 bytes")),
        Err(Failure::Arrow(error)) => Err(arrow_error(error)),
    }
}

#[pyclass(module = "kafkagroup_native", frozen)]
pub struct EncodedValues {
    inner: ArrayData,
}

#[pymethods]
impl EncodedValues {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        type_capsule(py, self.inner.data_type())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Exported<'py>> {
        exported(py, type_capsule(py, self.inner.data_type())?, &self.inner, requested_schema)
    }
}

/// Borrows the buffers of a column. `before`: the number of the column's rows before the first row of the struct array
/// that contains it.
fn cells<'a>(column: Column<'a>, before: usize) -> Result<Cells<'a>, Refusal> {
    let first = before + column.first();
    let nothing: &[u8] = &[];
    let (values, data) = match column.kind {
        DataType::Boolean => (column.bits(), nothing),
        DataType::Utf8 | DataType::Binary => (column.offsets(), column.data()),
        DataType::LargeUtf8 | DataType::LargeBinary => (column.large_offsets(), column.large_data()),
        DataType::List(_) | DataType::Map(..) => (column.offsets(), nothing),
        DataType::LargeList(_) => (column.large_offsets(), nothing),
        kind => (kind.primitive_width().map_or(nothing, |width| column.values(width)), nothing),
    };
    let children = match column.kind {
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
            vec![cells(column.child(0, item.data_type())?, 0)?]
        }
        DataType::Struct(fields) => {
            let parts = fields.iter().enumerate();
            parts.map(|(i, field)| cells(column.child(i, field.data_type())?, first)).collect::<Result<_, _>>()?
        }
        _ => vec![],
    };
    Ok(Cells { kind: column.kind, validity: column.validity(), first, values, data, children })
}
