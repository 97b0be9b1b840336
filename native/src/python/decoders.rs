//! The Python classes `AvroDecoder`, `ProtobufDecoder`, `JsonDecoder` and `DecodedValues`.

use std::collections::HashMap;

use arrow_schema::DataType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyString};

use super::arrow_export::{Exported, exported, type_capsule};
use super::arrow_import::{Column, Imported, imported_type};
use super::errors::arrow_error;
use crate::arrays::{Binary, LargeBinary, Outside};
use crate::avro;
use crate::json;
use crate::protobuf;
use crate::protobuf::descriptors::Source;
use crate::values::budget::MOST;
use crate::values::fault::Fault;
use crate::values::framing::Framing;
use crate::values::rows::{Decoded, Failure, Limits, Values};

/// Row, id of the writer schema, message.
type Bad<'py> = (usize, Option<u64>, Bound<'py, PyString>);

#[pyclass(module = "kafkagroup_native")]
pub struct AvroDecoder {
    inner: avro::decoder::Decoder,
    record_bytes: usize,
}

#[pymethods]
impl AvroDecoder {
    #[new]
    #[pyo3(signature = (reader_schema, *, wanted=None, framing="confluent", recursive_depth=0, max_decoded_bytes=67108864))]
    fn new(
        reader_schema: &str,
        wanted: Option<&Bound<'_, PyAny>>,
        framing: &str,
        recursive_depth: i64,
        max_decoded_bytes: usize,
    ) -> PyResult<Self> {
        let framing = Framing::parse(framing).map_err(PyValueError::new_err)?;
        let wanted = wanted.map(imported_type).transpose()?;
        let inner = avro::decoder::Decoder::new(reader_schema, wanted.as_ref(), framing, recursive_depth);
        Ok(Self { inner: inner.map_err(refuse)?, record_bytes: record_limit(max_decoded_bytes)? })
    }

    fn add_writer_schema(&mut self, schema_id: u64, schema: &str) -> PyResult<()> {
        self.inner.add(schema_id, schema).map_err(refuse)
    }

    fn missing_ids(&mut self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<(Vec<u64>, usize)> {
        of_column(py, values, |column| self.inner.missing(column))
    }

    #[pyo3(signature = (values, *, batch_bytes=1073741823))]
    fn decode(&self, py: Python<'_>, values: &Bound<'_, PyAny>, batch_bytes: usize) -> PyResult<DecodedValues> {
        let limits = Limits { record: self.record_bytes, batch: batch_bytes.clamp(1, MOST) };
        let inner = of_column(py, values, |column| self.inner.decode(column, limits))?;
        Ok(DecodedValues { inner })
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        type_capsule(py, self.inner.kind())
    }
}

#[pyclass(module = "kafkagroup_native")]
pub struct ProtobufDecoder {
    inner: protobuf::decoder::Decoder,
    record_bytes: usize,
}

#[derive(FromPyObject)]
pub enum ProtobufSchema {
    Text(String),
    Descriptors(Vec<u8>),
}

impl ProtobufSchema {
    pub fn source(&self, imports: Option<HashMap<String, String>>) -> Source<'_> {
        match self {
            Self::Text(text) => Source::Text(text, imports.unwrap_or_default()),
            Self::Descriptors(bytes) => Source::Descriptors(bytes),
        }
    }
}

#[pymethods]
impl ProtobufDecoder {
    #[new]
    #[pyo3(signature = (schema, *, imports=None, message=None, wanted=None, framing="confluent", recursive_depth=0, max_decoded_bytes=67108864))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        schema: ProtobufSchema,
        imports: Option<HashMap<String, String>>,
        message: Option<&str>,
        wanted: Option<&Bound<'_, PyAny>>,
        framing: &str,
        recursive_depth: i64,
        max_decoded_bytes: usize,
    ) -> PyResult<Self> {
        let framing = Framing::parse(framing).map_err(PyValueError::new_err)?;
        let (source, wanted) = (schema.source(imports), wanted.map(imported_type).transpose()?);
        let inner = protobuf::decoder::Decoder::new(source, message, wanted.as_ref(), framing, recursive_depth);
        Ok(Self { inner: inner.map_err(refuse)?, record_bytes: record_limit(max_decoded_bytes)? })
    }

    fn add_writer_schema(&mut self, schema_id: u64, schema: &str) -> PyResult<()> {
        self.inner.add(schema_id, schema).map_err(refuse)
    }

    fn message_of(&self, value: &[u8]) -> PyResult<String> {
        self.inner.message_of(value).map_err(refuse)
    }

    fn missing_ids(&mut self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<(Vec<u64>, usize)> {
        of_column(py, values, |column| self.inner.missing(column))
    }

    #[pyo3(signature = (values, *, batch_bytes=1073741823))]
    fn decode(&self, py: Python<'_>, values: &Bound<'_, PyAny>, batch_bytes: usize) -> PyResult<DecodedValues> {
        let limits = Limits { record: self.record_bytes, batch: batch_bytes.clamp(1, MOST) };
        let inner = of_column(py, values, |column| self.inner.decode(column, limits))?;
        Ok(DecodedValues { inner })
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        type_capsule(py, self.inner.kind())
    }
}

#[pyclass(module = "kafkagroup_native")]
pub struct JsonDecoder {
    inner: json::decoder::Decoder,
    record_bytes: usize,
}

#[pymethods]
impl JsonDecoder {
    #[new]
    #[pyo3(signature = (kind, *, framing="none", checks_ids=false, max_decoded_bytes=67108864))]
    fn new(kind: &Bound<'_, PyAny>, framing: &str, checks_ids: bool, max_decoded_bytes: usize) -> PyResult<Self> {
        let framing = Framing::parse(framing).map_err(PyValueError::new_err)?;
        let inner = json::decoder::Decoder::new(&imported_type(kind)?, framing, checks_ids).map_err(refuse)?;
        Ok(Self { inner, record_bytes: record_limit(max_decoded_bytes)? })
    }

    // Python callers name the argument, as for decoders that read the schema.
    #[allow(unused_variables)]
    fn add_writer_schema(&mut self, schema_id: u64, schema: &str) {
        self.inner.add(schema_id);
    }

    fn missing_ids(&mut self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<(Vec<u64>, usize)> {
        of_column(py, values, |column| self.inner.missing(column))
    }

    #[pyo3(signature = (values, *, batch_bytes=1073741823))]
    fn decode(&self, py: Python<'_>, values: &Bound<'_, PyAny>, batch_bytes: usize) -> PyResult<DecodedValues> {
        let limits = Limits { record: self.record_bytes, batch: batch_bytes.clamp(1, MOST) };
        let inner = of_column(py, values, |column| self.inner.decode(column, limits))?;
        Ok(DecodedValues { inner })
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        type_capsule(py, self.inner.kind())
    }
}

fn record_limit(bytes: usize) -> PyResult<usize> {
    if (1..=MOST).contains(&bytes) {
        return Ok(bytes);
    }
    Err(PyValueError::new_err(format!("max_decoded_bytes must be at least 1 and at most {MOST}")))
}

/// Returns the result for a column of values, without the interpreter's lock.
fn of_column<T: Send>(
    py: Python<'_>,
    values: &Bound<'_, PyAny>,
    read: impl FnOnce(&BinaryColumn<'_>) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let imported = Imported::new(values)?;
    let column = BinaryColumn::new(imported.column().map_err(malformed)?)?;
    py.detach(|| read(&column)).map_err(fail)
}

#[pyclass(module = "kafkagroup_native", frozen)]
pub struct DecodedValues {
    inner: Decoded,
}

#[pymethods]
impl DecodedValues {
    #[getter]
    fn bad<'py>(&self, py: Python<'py>) -> Vec<Bad<'py>> {
        let messages: Vec<_> = self.inner.messages.iter().map(|message| PyString::new(py, message)).collect();
        let bad = self.inner.bad.iter();
        bad.filter_map(|bad| Some((bad.row, bad.id, messages.get(bad.message)?.clone()))).collect()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        type_capsule(py, self.inner.data.data_type())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Exported<'py>> {
        exported(py, type_capsule(py, self.inner.data.data_type())?, &self.inner.data, requested_schema)
    }
}

enum BinaryColumn<'a> {
    Small { rows: usize, values: Binary<'a> },
    Large { rows: usize, values: LargeBinary<'a> },
}

impl<'a> BinaryColumn<'a> {
    fn new(column: Column<'a>) -> PyResult<Self> {
        let (rows, first, validity) = (column.rows(), column.first(), column.validity());
        match column.kind {
            DataType::Binary | DataType::Utf8 => {
                Ok(Self::Small { rows, values: Binary::new(validity, first, column.offsets(), column.data()) })
            }
            DataType::LargeBinary | DataType::LargeUtf8 => {
                let values = LargeBinary::new(validity, first, column.large_offsets(), column.large_data());
                Ok(Self::Large { rows, values })
            }
            kind => Err(PyValueError::new_err(format!("values are an Arrow array of binary, not of {kind}"))),
        }
    }
}

impl Values for BinaryColumn<'_> {
    fn rows(&self) -> usize {
        let (Self::Small { rows, .. } | Self::Large { rows, .. }) = self;
        *rows
    }

    #[inline(always)]
    fn get(&self, row: usize) -> Result<Option<&[u8]>, Outside> {
        match self {
            Self::Small { values, .. } => values.get(row),
            Self::Large { values, .. } => values.get(row),
        }
    }
}

pub fn refuse(fault: Fault) -> PyErr {
    PyValueError::new_err(fault.to_string())
}

pub fn malformed(refusal: crate::refusal::Refusal) -> PyErr {
    PyValueError::new_err(refusal.to_string())
}

fn fail(failure: Failure) -> PyErr {
    match failure {
        Failure::Outside => PyValueError::new_err("the offsets of the values point outside their buffers"),
        Failure::Arrow(error) => arrow_error(error),
    }
}
