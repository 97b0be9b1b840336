//! An Arrow array to Protobuf messages.
//!
//! [`fit`] compares a column's type with a message once; [`run`] writes each row as that says; [`encoder::Encoder`] adds the
//! framing.

pub mod encoder;
mod fit;
mod run;
