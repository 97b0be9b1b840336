//! The Python module: converts arguments, results and errors. `kafkagroup_native.pyi` documents the module for users.

mod arrow_export;
mod arrow_import;
mod buffer;
mod decoders;
mod encoder;
mod encoders;
mod errors;
mod rows;
mod scan;

use pyo3::PyClass;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::aborted::AbortedTransactions;
use crate::builder::{self, Limits};
use crate::columns::Column;
use crate::record_set::{self, Progress};
use arrow_export::{Exported, exported, schema_capsule};
use buffer::Buffer;
use errors::arrow_error;

/// The version of the interface in `kafkagroup_native.pyi`. Before `kafka_source` plans a query, it compares this
/// version with the version in `engine_selection.py`. Raise both versions with every change of the interface.
const INTERFACE: u32 = 10;

#[pymodule]
fn kafkagroup_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("INTERFACE", INTERFACE)?;
    add_class::<RecordSet>(module)?;
    add_class::<BatchBuilder>(module)?;
    add_class::<Batch>(module)?;
    add_class::<encoder::BatchEncoder>(module)?;
    add_class::<scan::Scan>(module)?;
    add_class::<decoders::AvroDecoder>(module)?;
    add_class::<decoders::ProtobufDecoder>(module)?;
    add_class::<decoders::JsonDecoder>(module)?;
    add_class::<decoders::DecodedValues>(module)?;
    add_class::<encoders::AvroEncoder>(module)?;
    add_class::<encoders::ProtobufEncoder>(module)?;
    add_class::<encoders::JsonEncoder>(module)?;
    add_class::<encoders::EncodedValues>(module)?;
    module.add_function(wrap_pyfunction!(scan::headers, module)?)?;
    errors::add_to(module)
}

/// Adds a class, after a check that `PyO3` lacks: Python aligns objects to 16 bytes, which must suffice for the class.
fn add_class<T: PyClass>(module: &Bound<'_, PyModule>) -> PyResult<()> {
    const { assert!(align_of::<T>() <= 16, "put what needs a larger alignment into a box") };
    module.add_class::<T>()
}

#[derive(FromPyObject)]
enum ColumnSpec {
    Typed(String, String),
    Name(String),
}

#[pyclass(module = "kafkagroup_native")]
struct RecordSet {
    inner: record_set::RecordSet<Buffer>,
}

#[pymethods]
impl RecordSet {
    #[new]
    #[pyo3(signature = (buffer, topic, partition, *, start=0, end=None, from_offset=0, to_offset=9_223_372_036_854_775_807, aborted_transactions=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        buffer: &Bound<'_, PyAny>,
        topic: &str,
        partition: i32,
        start: usize,
        end: Option<usize>,
        from_offset: i64,
        to_offset: i64,
        aborted_transactions: Option<Vec<(i64, i64)>>,
    ) -> PyResult<Self> {
        let source = Buffer::part(buffer, start, end)?;
        let aborted = AbortedTransactions::new(aborted_transactions.unwrap_or_default());
        Ok(Self { inner: record_set::RecordSet::new(source, topic.into(), partition, from_offset, to_offset, aborted) })
    }

    #[getter]
    fn next_offset(&self) -> i64 {
        self.inner.next_offset()
    }

    #[getter]
    fn consumed(&self) -> usize {
        self.inner.consumed()
    }

    #[getter]
    fn done(&self) -> bool {
        self.inner.is_done()
    }

    #[getter]
    fn partial_batch_bytes(&self) -> Option<usize> {
        self.inner.partial_batch_bytes()
    }

    fn __repr__(&self) -> String {
        let inner = &self.inner;
        format!(
            "RecordSet({}-{}, next_offset={}, consumed={}, done={})",
            inner.topic(),
            inner.partition(),
            inner.next_offset(),
            inner.consumed(),
            if inner.is_done() { "True" } else { "False" }
        )
    }
}

#[pyclass(module = "kafkagroup_native")]
struct BatchBuilder {
    inner: builder::BatchBuilder,
}

#[pymethods]
impl BatchBuilder {
    #[new]
    #[pyo3(signature = (columns, *, batch_rows=65_536, batch_bytes=16_777_216, max_unpacked_bytes=268_435_456))]
    fn new(
        columns: Vec<ColumnSpec>,
        batch_rows: usize,
        batch_bytes: usize,
        max_unpacked_bytes: usize,
    ) -> PyResult<Self> {
        let columns: Vec<_> = columns
            .iter()
            .map(|spec| match spec {
                ColumnSpec::Name(name) => Column::parse(name, None),
                ColumnSpec::Typed(name, kind) => Column::parse(name, Some(kind)),
            })
            .collect::<Result<_, _>>()
            .map_err(PyValueError::new_err)?;
        let limits = Limits { batch_rows, batch_bytes, max_unpacked_bytes };
        let inner = builder::BatchBuilder::new(&columns, limits).map_err(PyValueError::new_err)?;
        Ok(Self { inner })
    }

    #[getter]
    fn num_rows(&self) -> usize {
        self.inner.rows()
    }

    #[getter]
    fn num_bytes(&self) -> usize {
        self.inner.bytes()
    }

    fn append(&mut self, py: Python<'_>, record_set: &mut RecordSet) -> PyResult<bool> {
        let (builder, records) = (&mut self.inner, &mut record_set.inner);
        let progress = py.detach(|| records.append(builder)).map_err(|error| errors::raise(py, error))?;
        if progress == Progress::Done {
            records.source_mut().release();
        }
        Ok(progress == Progress::Full)
    }

    fn take(&mut self, py: Python<'_>) -> PyResult<Batch> {
        let builder = &mut self.inner;
        let batch = py.detach(|| builder.take()).map_err(arrow_error)?;
        Ok(Batch { inner: batch })
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.inner.schema().as_ref())
    }
}

#[pyclass(module = "kafkagroup_native", frozen)]
struct Batch {
    inner: builder::Batch,
}

#[pymethods]
impl Batch {
    #[getter]
    fn num_rows(&self) -> usize {
        self.inner.data.len()
    }

    #[getter]
    fn num_bytes(&self) -> usize {
        self.inner.bytes
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.inner.schema.as_ref())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Exported<'py>> {
        exported(py, schema_capsule(py, self.inner.schema.as_ref())?, &self.inner.data, requested_schema)
    }
}
