//! An Arrow array to Avro values.
//!
//! [`fit`] compares the array's type with the schema and makes a plan, which [`encoder::Encoder`] runs ([`run`])
//! on each row.
//!
//! What fits is what Spark's `AvroSerializer` accepts, and besides: an int for a long, a float for a double, a decimal of
//! the same scale, and a field that the array does not have, if the schema has a default for it.

pub mod encoder;
mod fit;
mod run;
