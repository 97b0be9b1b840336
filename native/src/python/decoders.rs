//! The Python classes `AvroDecoder`, `ProtobufDecoder`, `JsonDecoder` and `DecodedValues`.

use std::collections::HashMap;

use arrow_schema::DataType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyString};

use super::arrow_export::{Exported, exported, type_capsule};
use super::arrow_import::{Column, Imported, imported_type};
use super::errors::arrow_error;
use crate::arrays::{Binary, Bytes, LargeBinary, Offset, Outside};
use crate::avro;
use crate::json;
use crate::protobuf;
use crate::protobuf::descriptors::Source;
use crate::values::fault::Fault;
use crate::values::framing::Framing;
use crate::values::rows::{Decoded, Failure, Values};

/// Row, id of the writer schema, message.
type Bad<'py> = (usize, Option<u64>, Bound<'py, PyString>);

#[pyclass(module = "kafkagroup_native")]
pub struct AvroDecoder {
    inner: avro::decoder::Decoder,
}

#[pymethods]
impl AvroDecoder {
    #[new]
    #[pyo3(signature = (reader_schema, *, fields=None, framing="confluent", recursive_depth=0))]
    fn new(reader_schema: &str, fields: Option<Vec<String>>, framing: &str, recursive_depth: i64) -> PyResult<Self> {
        let framing = Framing::parse(framing).map_err(PyValueError::new_err)?;
        let inner =
            avro::decoder::Decoder::new(reader_schema, fields.as_deref(), framing, recursive_depth).map_err(refuse)?;
        Ok(Self { inner })
    }

    fn add_writer_schema(&mut self, schema_id: u64, schema: &str) -> PyResult<()> {
        self.inner.add(schema_id, schema).map_err(refuse)
    }

    fn missing_ids(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
        missing(py, values, &self.inner)
    }

    fn decode(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<DecodedValues> {
        decoded(py, values, &self.inner)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        type_capsule(py, self.inner.kind())
    }
}

#[pyclass(module = "kafkagroup_native")]
pub struct ProtobufDecoder {
    inner: protobuf::decoder::Decoder,
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
    #[pyo3(signature = (schema, *, imports=None, message=None, fields=None, framing="confluent", recursive_depth=0))]
    fn new(
        schema: ProtobufSchema,
        imports: Option<HashMap<String, String>>,
        message: Option<&str>,
        fields: Option<Vec<String>>,
        framing: &str,
        recursive_depth: i64,
    ) -> PyResult<Self> {
        let framing = Framing::parse(framing).map_err(PyValueError::new_err)?;
        let source = schema.source(imports);
        let inner = protobuf::decoder::Decoder::new(source, message, fields.as_deref(), framing, recursive_depth);
        Ok(Self { inner: inner.map_err(refuse)? })
    }

    fn add_writer_schema(&mut self, schema_id: u64, schema: &str) -> PyResult<()> {
        self.inner.add(schema_id, schema).map_err(refuse)
    }

    fn missing_ids(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
        missing(py, values, &self.inner)
    }

    fn decode(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<DecodedValues> {
        decoded(py, values, &self.inner)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        type_capsule(py, self.inner.kind())
    }
}

#[pyclass(module = "kafkagroup_native", frozen)]
pub struct JsonDecoder {
    inner: json::decoder::Decoder,
}

#[pymethods]
impl JsonDecoder {
    #[new]
    #[pyo3(signature = (kind, *, framing="none"))]
    fn new(kind: &Bound<'_, PyAny>, framing: &str) -> PyResult<Self> {
        let framing = Framing::parse(framing).map_err(PyValueError::new_err)?;
        let inner = json::decoder::Decoder::new(&imported_type(kind)?, framing).map_err(refuse)?;
        Ok(Self { inner })
    }

    fn schema_ids(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
        missing(py, values, &self.inner)
    }

    fn decode(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<DecodedValues> {
        decoded(py, values, &self.inner)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        type_capsule(py, self.inner.kind())
    }
}

/// A decoder of a column of values, whose offsets have 32 or 64 bits.
trait Decode: Sync {
    fn decode_column(&self, values: &impl Values) -> Result<Decoded, Failure>;

    /// Returns the ids of writer schemas that are not known yet. No writer schema of JSON is known.
    fn missing_in(&self, values: &impl Values) -> Result<Vec<u64>, Failure>;
}

impl Decode for avro::decoder::Decoder {
    fn decode_column(&self, values: &impl Values) -> Result<Decoded, Failure> {
        self.decode(values)
    }

    fn missing_in(&self, values: &impl Values) -> Result<Vec<u64>, Failure> {
        self.missing(values)
    }
}

impl Decode for protobuf::decoder::Decoder {
    fn decode_column(&self, values: &impl Values) -> Result<Decoded, Failure> {
        self.decode(values)
    }

    fn missing_in(&self, values: &impl Values) -> Result<Vec<u64>, Failure> {
        self.missing(values)
    }
}

impl Decode for json::decoder::Decoder {
    fn decode_column(&self, values: &impl Values) -> Result<Decoded, Failure> {
        self.decode(values)
    }

    fn missing_in(&self, values: &impl Values) -> Result<Vec<u64>, Failure> {
        self.ids(values)
    }
}

fn decoded(py: Python<'_>, values: &Bound<'_, PyAny>, decoder: &impl Decode) -> PyResult<DecodedValues> {
    let imported = Imported::new(values)?;
    let inner = match BinaryColumn::new(imported.column().map_err(malformed)?)? {
        BinaryColumn::Small { rows, values } => py.detach(|| decoder.decode_column(&Rows { rows, values })),
        BinaryColumn::Large { rows, values } => py.detach(|| decoder.decode_column(&Rows { rows, values })),
    };
    Ok(DecodedValues { inner: inner.map_err(fail)? })
}

fn missing(py: Python<'_>, values: &Bound<'_, PyAny>, decoder: &impl Decode) -> PyResult<Vec<u64>> {
    let imported = Imported::new(values)?;
    match BinaryColumn::new(imported.column().map_err(malformed)?)? {
        BinaryColumn::Small { rows, values } => py.detach(|| decoder.missing_in(&Rows { rows, values })),
        BinaryColumn::Large { rows, values } => py.detach(|| decoder.missing_in(&Rows { rows, values })),
    }
    .map_err(fail)
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

struct Rows<T> {
    rows: usize,
    values: T,
}

impl<const N: usize> Values for Rows<Bytes<'_, N>>
where
    [u8; N]: Offset,
{
    fn rows(&self) -> usize {
        self.rows
    }

    #[inline(always)]
    fn get(&self, row: usize) -> Result<Option<&[u8]>, Outside> {
        self.values.get(row)
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
