//! What the decoders of all formats share: values that are bytes to an Arrow array.
//!
//! [`slot::Slot`] (the type of a column) → [`column::Column`] (which grows value by value) and [`rows`] (framing, writer
//! schemas, bad records) → Arrow. [`crate::avro`], [`crate::protobuf`] and [`crate::json`] say how a value becomes a row.

pub mod column;
pub mod fault;
pub mod framing;
pub mod rows;
pub mod slot;
