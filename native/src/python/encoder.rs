//! The encoder's boundary: Arrow buffers in, record batches out.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::errors;
use crate::arrays::{self, Binary, Int32, Validity};
use crate::compress::Codec;
use crate::encoder::{Encoder, Rows, Settings};
use crate::filling::Producer;

/// Validity, offset in rows, 32-bit offsets, data.
type Column = (Option<PyBackedBytes>, i64, PyBackedBytes, PyBackedBytes);
/// Validity, offset in rows, values.
type Chosen = (Option<PyBackedBytes>, i64, PyBackedBytes);
/// Validity, offset in rows, the lists' offsets, keys, values.
type Headers = (Option<PyBackedBytes>, i64, PyBackedBytes, Column, Column);
/// Topic, partition, records, the batch.
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
        Encoder::new(settings).map(|inner| Self { inner }).map_err(|refusal| errors::refuse(py, refusal))
    }

    #[pyo3(signature = (producer_id, epoch, *, transactional=false))]
    fn identify(&mut self, producer_id: i64, epoch: i16, transactional: bool) {
        self.inner.identify(Producer { id: producer_id, epoch, transactional });
    }

    #[allow(clippy::too_many_arguments)]
    fn append(
        &mut self,
        py: Python<'_>,
        topic: i64,
        partitions: i64,
        rows: i64,
        values: Column,
        keys: Option<Column>,
        chosen: Option<Chosen>,
        headers: Option<Headers>,
        timestamp_ms: i64,
    ) -> PyResult<()> {
        let partitions = size("partitions", partitions)?;
        let rows = Rows {
            rows: size("rows", rows)?,
            values: binary(&values)?,
            keys: keys.as_ref().map(binary).transpose()?,
            chosen: chosen.as_ref().map(int32).transpose()?,
            headers: headers.as_ref().map(lists).transpose()?,
            timestamp: timestamp_ms,
        };
        let encoder = &mut self.inner;
        py.detach(|| encoder.append(topic, partitions, &rows)).map_err(|refusal| errors::refuse(py, refusal))
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

fn binary((validity, first, offsets, data): &Column) -> PyResult<Binary<'_>> {
    Ok(Binary::new(bits(validity), size("a column's offset", *first)?, offsets, data))
}

fn int32((validity, first, values): &Chosen) -> PyResult<Int32<'_>> {
    Ok(Int32::new(bits(validity), size("a column's offset", *first)?, values))
}

fn lists((validity, first, offsets, keys, values): &Headers) -> PyResult<arrays::Headers<'_>> {
    let first = size("a column's offset", *first)?;
    Ok(arrays::Headers::new(bits(validity), first, offsets, binary(keys)?, binary(values)?))
}

fn bits(validity: &Option<PyBackedBytes>) -> Validity<'_> {
    Validity(validity.as_deref())
}

fn size(name: &str, value: i64) -> PyResult<usize> {
    usize::try_from(value).map_err(|_| PyValueError::new_err(format!("{name} is 0 or more, not {value}")))
}
