//! `scan` for Python.

use pyo3::prelude::*;

use super::buffer::Buffer;
use crate::scan;

#[pyclass(module = "kafkagroup_native", frozen, get_all)]
pub struct Scan {
    next_offset: i64,
    cut_off: usize,
    size: usize,
    batches: usize,
    offsets: i64,
    leader_epoch: i32,
}

#[pyfunction]
#[pyo3(name = "scan", signature = (buffer, from_offset, *, start=0, end=None))]
pub fn headers(buffer: &Bound<'_, PyAny>, from_offset: i64, start: usize, end: Option<usize>) -> PyResult<Scan> {
    let source = Buffer::part(buffer, start, end)?;
    let scan::Scan { next_offset, cut_off, size, batches, offsets, leader_epoch } = scan::scan(&source, from_offset);
    Ok(Scan { next_offset, cut_off, size, batches, offsets, leader_epoch })
}
