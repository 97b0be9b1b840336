//! JSON values to an Arrow array of a given type, and back ([`encoder`]).
//!
//! A type becomes a [`plan::Node`], which [`reader::Reader`] runs on the text of a value, straight into columns. Types
//! and their values are those of Spark's `from_json`, with the exceptions of `docs/design/values.md`.

pub mod decoder;
pub mod encoder;
mod plan;
mod reader;
mod scalars;
pub mod texts;
