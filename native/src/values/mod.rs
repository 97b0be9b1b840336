//! What the decoders and encoders of all formats share: values that are bytes to an Arrow array, and back.
//!
//! [`slot::Slot`] (the type of a column) → [`column::Column`] (which grows value by value) and [`rows`] (framing, writer
//! schemas, bad records) → Arrow. [`crate::avro`], [`crate::protobuf`] and [`crate::json`] say how a value becomes a row.
//!
//! [`cells::Cells`] (the borrowed buffers of an array of any type) → [`encode`] (framing, null rows) → values.

pub mod budget;
pub mod cells;
pub mod column;
pub mod encode;
pub mod fault;
pub mod framing;
pub mod rows;
pub mod slot;
pub mod spark_names;
