//! Protobuf values to an Arrow array, and back ([`write`]).
//!
//! [`descriptors`] (the text of a `.proto` file, or a descriptor set) → [`plan`] (the column type of a message, and the
//! columns of its fields) → [`decoder::Decoder`] (framing), which runs the plan ([`run`]) into columns.
//!
//! The types are those of spark-protobuf's `SchemaConverters`.

pub mod decoder;
pub mod descriptors;
mod plan;
mod run;
mod text;
mod well_known;
mod wire;
pub mod write;
