//! The parts that the decoders and encoders of all formats share, between values of bytes and an Arrow array.
//!
//! [`slot::Slot`] (the type of a column) → [`column::Column`] (which grows value by value) and [`rows`] (framing,
//! writer schemas, bad records) → Arrow. [`crate::avro`], [`crate::protobuf`] and [`crate::json`] make rows.
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
