//! The exception classes, and the conversion of an [`Error`] or a [`Refusal`] to an exception.

use arrow_schema::ArrowError;
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::error::{Error, Kind};
use crate::refusal::Refusal;

create_exception!(kafkagroup_native, RecordsError, PyValueError);
create_exception!(kafkagroup_native, CorruptRecords, RecordsError);
create_exception!(kafkagroup_native, OldMessageFormat, RecordsError);
create_exception!(kafkagroup_native, UnreadableRecord, RecordsError);
create_exception!(kafkagroup_native, BatchTooLarge, RecordsError);
create_exception!(kafkagroup_native, UnknownPartition, PyValueError);
create_exception!(kafkagroup_native, RecordTooLarge, PyValueError);
create_exception!(kafkagroup_native, UnfitValue, PyValueError);

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("RecordsError", py.get_type::<RecordsError>())?;
    module.add("CorruptRecords", py.get_type::<CorruptRecords>())?;
    module.add("OldMessageFormat", py.get_type::<OldMessageFormat>())?;
    module.add("UnreadableRecord", py.get_type::<UnreadableRecord>())?;
    module.add("BatchTooLarge", py.get_type::<BatchTooLarge>())?;
    module.add("UnknownPartition", py.get_type::<UnknownPartition>())?;
    module.add("RecordTooLarge", py.get_type::<RecordTooLarge>())?;
    module.add("UnfitValue", py.get_type::<UnfitValue>())
}

/// Returns the exception for an error, with the error's place as attributes.
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

/// Returns the exception for a refusal, with the refusal's place as attributes.
pub fn refuse(py: Python<'_>, refusal: Refusal) -> PyErr {
    let message = refusal.to_string();
    match refusal {
        Refusal::Malformed(_) => PyValueError::new_err(message),
        Refusal::Codec(_) => PyRuntimeError::new_err(message),
        Refusal::UnknownPartition { topic, partition, partitions, row } => {
            let (partition, row) = (i64::from(partition), row as i64);
            let attributes =
                [("topic", topic), ("partition", partition), ("partitions", partitions as i64), ("row", row)];
            with_attributes(py, UnknownPartition::new_err(message), &attributes)
        }
        Refusal::RecordTooLarge { topic, partition, row, size, limit } => {
            let [partition, row, size, limit] = [partition, row, size, limit].map(|number| number as i64);
            let attributes =
                [("topic", topic), ("partition", partition), ("row", row), ("size", size), ("limit", limit)];
            with_attributes(py, RecordTooLarge::new_err(message), &attributes)
        }
    }
}

/// Returns the exception for a row's value that does not fit a schema.
pub fn unfit(py: Python<'_>, row: usize, reason: &str) -> PyErr {
    let exception = UnfitValue::new_err(reason.to_owned());
    with_attributes(py, exception, &[("row", row as i64)])
}

fn with_attributes(py: Python<'_>, exception: PyErr, attributes: &[(&str, i64)]) -> PyErr {
    let value = exception.value(py);
    match attributes.iter().try_for_each(|&(name, number)| value.setattr(name, number)) {
        Ok(()) => exception,
        Err(failed) => failed,
    }
}

/// Returns the exception for an array that Arrow refuses.
pub fn arrow_error(error: ArrowError) -> PyErr {
    PyRuntimeError::new_err(format!("kafkagroup_native built an invalid Arrow batch, which is a bug in it: {error}"))
}
