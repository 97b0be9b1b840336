//! The exception classes, and how an [`Error`] becomes one.

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{Error, Kind};

create_exception!(kafkagroup_native, RecordsError, PyValueError);
create_exception!(kafkagroup_native, CorruptRecords, RecordsError);
create_exception!(kafkagroup_native, OldMessageFormat, RecordsError);
create_exception!(kafkagroup_native, UnreadableRecord, RecordsError);
create_exception!(kafkagroup_native, BatchTooLarge, RecordsError);

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("RecordsError", py.get_type::<RecordsError>())?;
    module.add("CorruptRecords", py.get_type::<CorruptRecords>())?;
    module.add("OldMessageFormat", py.get_type::<OldMessageFormat>())?;
    module.add("UnreadableRecord", py.get_type::<UnreadableRecord>())?;
    module.add("BatchTooLarge", py.get_type::<BatchTooLarge>())
}

/// The exception of an error, with its place as attributes.
pub fn raise(py: Python<'_>, error: Error) -> PyErr {
    let message = error.to_string();
    let exception = match error.kind {
        Kind::Corrupt => CorruptRecords::new_err(message),
        Kind::OldFormat => OldMessageFormat::new_err(message),
        Kind::Unreadable => UnreadableRecord::new_err(message),
        Kind::TooLarge => BatchTooLarge::new_err(message),
    };
    let value = exception.value(py);
    let set = || -> PyResult<()> {
        value.setattr("topic", &*error.topic)?;
        value.setattr("partition", error.partition)?;
        value.setattr("offset", error.offset)?;
        value.setattr("reason", error.reason)
    };
    match set() {
        Ok(()) => exception,
        Err(failed) => failed,
    }
}
