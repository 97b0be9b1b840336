//! An Arrow array to Avro values.
//!
//! [`fit`] compares the array's type with the schema and makes a plan for [`encoder::Encoder`] ([`run`]).
//!
//! The types are those that Spark's `AvroSerializer` accepts, and also an int as a long, a float as a double, and a
//! decimal of the same scale. The array may lack a field that has a default in the schema.

pub mod encoder;
mod fit;
mod run;
