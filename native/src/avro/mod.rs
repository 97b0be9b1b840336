//! Avro values to an Arrow array, and back ([`write`]).
//!
//! [`schema::Schema`] (parsed JSON) → [`shape`] (the column type of the reader schema) and [`compile::compile`] (how
//! values of a writer schema become values of the reader schema) → [`decoder::Decoder`], which runs [`plan::Op`]s ([`run`])
//! into a [`crate::values::column::Column`].
//!
//! The rules of resolution are those of Java's `org.apache.avro.Resolver` 1.12; the types are those of Spark's
//! `SchemaConverters`. `docs/design/values.md` has the reasons.

mod aliases;
mod compile;
pub mod decoder;
mod defaults;
pub mod input;
pub mod matching;
pub mod plan;
pub mod run;
pub mod schema;
pub mod shape;
mod skip;
mod text;
pub mod write;
