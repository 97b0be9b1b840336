//! JSON values to an Arrow array of a given type, and back ([`encoder`]).
//!
//! A type becomes a [`plan::Node`], which [`reader::Reader`] runs on the text of a value, straight into columns.
//! The types and what they take are those of Spark's `from_json`, where `docs/design/values.md` does not say otherwise.

pub mod decoder;
pub mod encoder;
mod plan;
mod reader;
mod scalars;
pub mod texts;
