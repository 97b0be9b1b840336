//! Kafka record sets to Arrow record batches.
//!
//! The way of the data: [`source::Source`] (the bytes of one partition in a Fetch response) →
//! [`record_set::RecordSet`] (a cursor over its batches: CRC, codec, aborted transactions, range) →
//! [`builder::BatchBuilder`] (the columns asked for, sized by rows and bytes) → [`builder::Batch`] → Arrow's C data
//! interface. `python` is the boundary and holds no logic of its own.

pub mod aborted;
pub mod builder;
pub mod codec;
pub mod columns;
pub mod error;
pub mod header;
mod lz4;
pub mod record;
pub mod record_set;
pub mod source;
pub mod varint;

#[cfg(feature = "python")]
mod python;
