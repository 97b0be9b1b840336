//! The Python class `BatchEncoder`: takes Arrow record batches, returns Kafka record batches.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::arrow_import::Imported;
use super::{errors, rows};
use crate::compress::Codec;
use crate::encoder::{Encoder, Settings};
use crate::filling::Producer;
use crate::kept_memory::keep_freed_blocks;

/// Topic, partition, number of records, batch.
type Taken<'py> = (i64, usize, i32, Bound<'py, PyBytes>);

#[pyclass(module = "kafkagroup_native")]
pub struct BatchEncoder {
    inner: Encoder,
}

#[pymethods]
impl BatchEncoder {
    #[new]
    #[pyo3(signature = (*, compression="none", level=None, batch_bytes=1_000_000, record_bytes=1_048_576, sticky=0))]
    fn new(
        py: Python<'_>,
        compression: &str,
        level: Option<i32>,
        batch_bytes: i64,
        record_bytes: i64,
        sticky: i64,
    ) -> PyResult<Self> {
        let codec = Codec::parse(compression, level).map_err(PyValueError::new_err)?;
        let settings = Settings {
            codec,
            batch_bytes: size("batch_bytes", batch_bytes)?,
            record_bytes: size("record_bytes", record_bytes)?,
            sticky: size("sticky", sticky)?,
        };
        keep_freed_blocks();
        Encoder::new(settings).map(|inner| Self { inner }).map_err(|refusal| errors::refuse(py, refusal))
    }

    #[pyo3(signature = (producer_id, epoch, *, transactional=false))]
    fn identify(&mut self, producer_id: i64, epoch: i16, transactional: bool) {
        self.inner.identify(Producer { id: producer_id, epoch, transactional });
    }

    fn append(
        &mut self,
        py: Python<'_>,
        topic: i64,
        partitions: i64,
        rows: &Bound<'_, PyAny>,
        timestamp_ms: i64,
    ) -> PyResult<()> {
        let partitions = size("partitions", partitions)?;
        let batch = Imported::new(rows)?;
        let encoder = &mut self.inner;
        py.detach(|| encoder.append(topic, partitions, &rows::rows(batch.column()?, timestamp_ms)?))
            .map_err(|refusal| errors::refuse(py, refusal))
    }

    #[pyo3(signature = (*, all))]
    fn take<'py>(&mut self, py: Python<'py>, all: bool) -> PyResult<Vec<Taken<'py>>> {
        let encoder = &mut self.inner;
        let sealed = py.detach(|| encoder.take(all)).map_err(|refusal| errors::refuse(py, refusal))?;
        let mut batches = Vec::with_capacity(sealed.len());
        for batch in sealed {
            batches.push((batch.topic, batch.partition, batch.count, PyBytes::new(py, &batch.bytes)));
            self.inner.recycle(batch.bytes);
        }
        Ok(batches)
    }

    fn split<'py>(
        &mut self,
        py: Python<'py>,
        batch: PyBackedBytes,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let encoder = &mut self.inner;
        let [one, other] = py.detach(|| encoder.split(&batch)).map_err(|refusal| errors::refuse(py, refusal))?;
        Ok((PyBytes::new(py, &one), PyBytes::new(py, &other)))
    }

    #[getter]
    fn pending_bytes(&self) -> usize {
        self.inner.pending()
    }
}

fn size(name: &str, value: i64) -> PyResult<usize> {
    usize::try_from(value).map_err(|_| PyValueError::new_err(format!("{name} must be 0 or more, not {value}")))
}
