//! Kafka record sets to Arrow record batches, and Arrow rows to Kafka record batches.
//!
//! The way of the data that is read: [`source::Source`] (the bytes of one partition in a Fetch response) →
//! [`record_set::RecordSet`] (a cursor over its batches: CRC, codec, aborted transactions, range) →
//! [`builder::BatchBuilder`] (the columns asked for, sized by rows and bytes) → [`builder::Batch`] → Arrow's C data
//! interface. Of the data that is written: [`arrays`] (an Arrow batch's buffers, borrowed) → [`encoder::Encoder`] (the
//! partition of each row, sequences) → [`filling::Filling`] (a batch in the making) → [`compress::Compressor`] →
//! [`encoder::Sealed`], for a Produce request. `python` is the boundary and holds no logic of its own.

// Lengths in Kafka's formats are 32 bits and offsets in a buffer are sums of them: with a `usize` of 64 bits no such sum
// overflows, which is why clippy's `arithmetic_side_effects` may be allowed in this crate.
#[cfg(not(target_pointer_width = "64"))]
compile_error!("kafkagroup-native needs a target with 64-bit pointers; use engine=librdkafka elsewhere");

pub mod aborted;
pub mod arrays;
pub mod builder;
pub mod codec;
pub mod columns;
pub mod compress;
pub mod encoder;
pub mod error;
pub mod filling;
pub mod header;
mod java_utf8;
mod limited_buffer;
mod lz4;
pub mod murmur2;
pub mod record;
pub mod record_set;
pub mod refusal;
pub mod source;
pub mod split;
pub mod varint;

#[cfg(feature = "python")]
mod python;
