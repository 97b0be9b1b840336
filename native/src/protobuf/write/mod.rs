//! An Arrow array to Protobuf messages.
//!
//! [`fit`] compares a column's type with a message once and makes a plan, by which [`run`] writes each row.
//! [`encoder::Encoder`] adds the framing.

pub mod encoder;
mod fit;
mod run;
