//! Compresses the records of a batch as Java's producer does: the codecs and their levels.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use lz4_flex::block::CompressTable;
use zstd_safe::{CCtx, CParameter};

/// The header of snappy-java's framing: magic, version 1, compatible with version 1 and later.
const XERIAL_HEADER: &[u8] = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01";
const XERIAL_BLOCK: usize = 32 << 10;
/// The header of an LZ4 frame: magic, flags and their checksum. Blocks have at most 64 KiB and no checksums. Blocks
/// are independent, because Java's reader does not support linked blocks.
const LZ4_HEADER: &[u8] = &[0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
const LZ4_BLOCK: usize = 64 << 10;
const LZ4_STORED: u32 = 1 << 31;
const ZSTD_LEVEL: i32 = 3;
/// A buffer above this size is freed after use, so that a single large batch does not keep its memory allocated.
const KEEP_AT_MOST: usize = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    None,
    Gzip(Compression),
    Snappy,
    Lz4,
    Zstd(i32),
}

impl Codec {
    /// Parses Kafka's name of a codec, and a level, which only gzip and zstd use.
    pub fn parse(name: &str, level: Option<i32>) -> Result<Self, String> {
        let zstd_levels = zstd_safe::min_c_level()..=zstd_safe::max_c_level();
        match (name, level) {
            ("none", _) => Ok(Self::None),
            ("snappy", _) => Ok(Self::Snappy),
            ("lz4", _) => Ok(Self::Lz4),
            ("gzip", None | Some(-1)) => Ok(Self::Gzip(Compression::default())),
            ("gzip", Some(level @ 1..=9)) => Ok(Self::Gzip(Compression::new(level.unsigned_abs()))),
            ("gzip", Some(level)) => Err(format!("gzip takes a level of 1 to 9, or -1 for its default, not {level}")),
            ("zstd", None) => Ok(Self::Zstd(ZSTD_LEVEL)),
            ("zstd", Some(level)) if zstd_levels.contains(&level) => Ok(Self::Zstd(level)),
            ("zstd", Some(level)) => {
                Err(format!("zstd takes a level of {} to {}, not {level}", zstd_levels.start(), zstd_levels.end()))
            }
            _ => Err(format!("unknown compression {name}; use none, gzip, snappy, lz4 or zstd")),
        }
    }

    /// Returns the codec's number in a batch's attributes.
    pub fn id(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip(_) => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd(_) => 4,
        }
    }
}

/// Compresses batches, and keeps the codecs' contexts and buffers, which are expensive to create.
pub struct Compressor {
    codec: Codec,
    packed: Vec<u8>,
    snappy: snap::raw::Encoder,
    /// Boxed, because the table needs an alignment of 64 bytes, and Python aligns its objects to 16 bytes.
    lz4: Box<CompressTable>,
    zstd: Option<CCtx<'static>>,
}

impl Compressor {
    pub fn new(codec: Codec) -> Self {
        let (snappy, lz4) = (snap::raw::Encoder::new(), Box::default());
        Self { codec, packed: vec![], snappy, lz4, zstd: None }
    }

    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Returns the compressed records; None if the codec is none.
    pub fn compress(&mut self, records: &[u8]) -> Result<Option<&[u8]>, String> {
        let len = match self.codec {
            Codec::None => return Ok(None),
            Codec::Gzip(level) => self.gzip(records, level)?,
            Codec::Snappy => self.snappy(records)?,
            Codec::Lz4 => self.lz4(records)?,
            Codec::Zstd(level) => self.zstd(records, level)?,
        };
        Ok(Some(self.packed.get(..len).unwrap_or_default()))
    }

    /// Frees memory that a single large batch has allocated.
    pub fn shrink(&mut self) {
        self.packed.truncate(KEEP_AT_MOST);
        self.packed.shrink_to(KEEP_AT_MOST);
    }

    fn gzip(&mut self, records: &[u8], level: Compression) -> Result<usize, String> {
        self.packed.clear();
        let mut encoder = GzEncoder::new(&mut self.packed, level);
        encoder
            .write_all(records)
            .and_then(|()| encoder.finish().map(|_| ()))
            .map_err(|error| format!("gzip: {error}"))?;
        Ok(self.packed.len())
    }

    fn snappy(&mut self, records: &[u8]) -> Result<usize, String> {
        let mut out = Out::new(&mut self.packed);
        out.put(XERIAL_HEADER);
        for block in records.chunks(XERIAL_BLOCK) {
            let place = out.put(&[0; 4]);
            let space = out.space(snap::raw::max_compress_len(block.len()));
            let len = self.snappy.compress(block, space).map_err(|error| format!("snappy: {error}"))?;
            out.used += len;
            out.set(place, (len as u32).to_be_bytes());
        }
        Ok(out.used)
    }

    fn lz4(&mut self, records: &[u8]) -> Result<usize, String> {
        let mut out = Out::new(&mut self.packed);
        out.put(LZ4_HEADER);
        for block in records.chunks(LZ4_BLOCK) {
            let place = out.put(&[0; 4]);
            let space = out.space(lz4_flex::block::get_maximum_output_size(block.len()));
            let len = lz4_flex::block::compress_into_with_table(block, space, &mut self.lz4)
                .map_err(|error| format!("lz4: {error}"))?;
            if len < block.len() {
                out.used += len;
                out.set(place, (len as u32).to_le_bytes());
            } else {
                out.put(block);
                out.set(place, (block.len() as u32 | LZ4_STORED).to_le_bytes());
            }
        }
        out.put(&[0; 4]);
        Ok(out.used)
    }

    fn zstd(&mut self, records: &[u8], level: i32) -> Result<usize, String> {
        let failed = |code| format!("zstd: {}", zstd_safe::get_error_name(code));
        // The context is put back only after success, so that a failed context is not used again.
        let mut context = match self.zstd.take() {
            Some(context) => context,
            None => {
                let mut context = CCtx::try_create().ok_or("zstd: no memory for a context")?;
                context.set_parameter(CParameter::CompressionLevel(level)).map_err(failed)?;
                context
            }
        };
        let space = Out::new(&mut self.packed).into_space(zstd_safe::compress_bound(records.len()));
        let len = context.compress2(space, records).map_err(failed)?;
        self.zstd = Some(context);
        Ok(len)
    }
}

/// A buffer that is written from its start and grows as needed; its old content is not cleared.
struct Out<'a> {
    bytes: &'a mut Vec<u8>,
    used: usize,
}

impl<'a> Out<'a> {
    fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes, used: 0 }
    }

    /// Returns exactly `len` free bytes.
    fn space(&mut self, len: usize) -> &mut [u8] {
        let end = self.used + len;
        if self.bytes.len() < end {
            self.bytes.resize(end.max(self.bytes.len() * 2), 0);
        }
        self.bytes.get_mut(self.used..end).unwrap_or_default()
    }

    fn into_space(mut self, len: usize) -> &'a mut [u8] {
        self.space(len);
        self.bytes.get_mut(self.used..self.used + len).unwrap_or_default()
    }

    /// Appends bytes; returns their position.
    fn put(&mut self, bytes: &[u8]) -> usize {
        self.space(bytes.len()).copy_from_slice(bytes);
        let place = self.used;
        self.used += bytes.len();
        place
    }

    fn set(&mut self, place: usize, value: [u8; 4]) {
        if let Some(space) = self.bytes.get_mut(place..).and_then(|tail| tail.first_chunk_mut()) {
            *space = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::codec::Decompressor;

    fn noisy(len: usize) -> Vec<u8> {
        let mut state = 1u32;
        (0..len)
            .map(|i| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if i / 1000 % 2 == 0 { (state >> 24) as u8 } else { b'a' }
            })
            .collect()
    }

    fn codecs() -> Vec<Codec> {
        let parse = |name, level| Codec::parse(name, level).unwrap();
        let mut codecs: Vec<_> = ["gzip", "snappy", "lz4", "zstd"].map(|name| parse(name, None)).into();
        codecs.extend([
            parse("gzip", Some(9)),
            parse("gzip", Some(1)),
            parse("zstd", Some(-5)),
            parse("zstd", Some(19)),
        ]);
        codecs
    }

    #[test]
    fn our_own_decoder_reads_every_codec_at_every_size() {
        for codec in codecs() {
            let mut compressor = Compressor::new(codec);
            // Large records come first, because bytes that stay in the buffers must not appear in later small batches.
            for len in [300_000, 65_536, 65_537, 32_768, 1000, 1] {
                let records = noisy(len);
                let packed = compressor.compress(&records).unwrap().unwrap().to_vec();
                let mut out = vec![];
                let used = Decompressor::new(1 << 20).decompress(codec.id(), &packed, &mut out).unwrap();
                assert!(out[..used] == records, "{codec:?} {len}");
                compressor.shrink();
            }
        }
    }

    #[test]
    fn another_reader_finds_the_lz4_frame_right() {
        // lz4_flex's reader also verifies the header's checksum; the reader of this crate does not.
        for len in [1, 65_536, 200_000] {
            let mut compressor = Compressor::new(Codec::Lz4);
            let packed = compressor.compress(&noisy(len)).unwrap().unwrap();
            let mut out = vec![];
            lz4_flex::frame::FrameDecoder::new(packed).read_to_end(&mut out).unwrap();
            assert!(out == noisy(len), "{len}");
        }
    }

    #[test]
    fn what_repeats_becomes_small_and_what_cannot_be_packed_grows_little() {
        let records: Vec<_> = noisy(400_000).chunks(1000).step_by(2).flatten().copied().collect();
        for codec in codecs() {
            let packed = Compressor::new(codec).compress(&records).unwrap().unwrap().len();
            assert!(packed < records.len() + records.len() / 10, "{codec:?} {packed}");
            let packed = Compressor::new(codec).compress(&[7; 100_000]).unwrap().unwrap().len();
            assert!(packed < 10_000, "{codec:?} {packed}");
        }
        assert_eq!(Compressor::new(Codec::None).compress(&records), Ok(None));
    }

    #[test]
    fn names_and_levels() {
        for (name, level) in [("gzip", 0), ("gzip", 10), ("gzip", -2), ("zstd", 23), ("zstd", -200_000), ("lzma", 1)] {
            let reason = Codec::parse(name, Some(level)).unwrap_err();
            assert!(reason.contains(name) && reason.contains("level") == (name != "lzma"), "{reason}");
        }
        assert_eq!(Codec::parse("gzip", Some(-1)), Codec::parse("gzip", None));
        assert_eq!(Codec::parse("lz4", Some(99)), Ok(Codec::Lz4));
    }

    #[test]
    fn the_memory_of_a_large_batch_is_given_back() {
        let mut compressor = Compressor::new(Codec::Snappy);
        compressor.packed.resize(2 * KEEP_AT_MOST, 0);
        compressor.shrink();
        assert!(compressor.packed.capacity() <= KEEP_AT_MOST);
    }
}
