//! Kafka record sets to Arrow record batches, and Arrow rows to Kafka record batches.
//!
//! Reading: [`source::Source`] (the bytes of one partition in a Fetch response) → [`record_set::RecordSet`] (a cursor
//! over its batches: CRC, codec, aborted transactions, range) → [`builder::BatchBuilder`] (the requested columns,
//! limited by rows and bytes) → [`builder::Batch`] → Arrow's C data interface. [`scan::scan`] reads the headers only.
//!
//! Writing: [`arrays`] (an Arrow batch's buffers, borrowed) → [`encoder::Encoder`] (the partition of each row, sequence
//! numbers) → [`filling::Filling`] (an open batch) → [`compress::Compressor`] → [`encoder::Sealed`], for a Produce
//! request.

// This crate allows clippy's `arithmetic_side_effects`, because lengths in Kafka's formats have 32 bits, so their sums
// (positions in a buffer) do not overflow a `usize` of 64 bits.
#[cfg(not(target_pointer_width = "64"))]
compile_error!("kafkagroup-native needs a target with 64-bit pointers; use engine=librdkafka elsewhere");

pub mod aborted;
pub mod arrays;
pub mod avro;
pub mod builder;
pub mod codec;
pub mod columns;
pub mod compress;
pub mod encoder;
pub mod error;
pub mod filling;
pub mod header;
mod java_utf8;
pub mod json;
pub mod kept_memory;
mod limited_buffer;
mod lz4;
pub mod murmur2;
pub mod protobuf;
pub mod record;
pub mod record_set;
pub mod refusal;
mod runs;
pub mod scan;
pub mod source;
pub mod split;
pub mod values;
pub mod varint;

#[cfg(feature = "python")]
mod python;
