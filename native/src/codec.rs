//! Decompresses the records of a batch with Kafka's codecs, and refuses more than `max_unpacked_bytes`.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use zstd_safe::DCtx;
use zstd_safe::zstd_sys::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall;

use crate::error::Fault;
use crate::limited_buffer::LimitedBuffer;
use crate::lz4;

/// The start of snappy-java's framing, followed by two 32-bit versions and blocks, each with a 32-bit length.
const XERIAL_MAGIC: &[u8] = b"\x82SNAPPY\x00";
const XERIAL_HEADER_LEN: usize = 16;
/// The highest compression ratio of a snappy block: three bytes encode at most 64 bytes.
const SNAPPY_MOST: usize = 22;
/// The result of zstd for a destination that is too small: zstd returns the negative number of an error.
const ZSTD_TOO_SMALL: usize = (ZSTD_error_dstSize_tooSmall as usize).wrapping_neg();

/// Decompresses batches, and keeps the zstd context, which is expensive to create.
pub struct Decompressor {
    limit: usize,
    zstd: Option<DCtx<'static>>,
}

impl Decompressor {
    pub fn new(limit: usize) -> Self {
        Self { limit, zstd: None }
    }

    /// Decompresses `packed` to the start of `out`, which grows as needed and never shrinks; returns the length.
    pub fn decompress(&mut self, codec: i16, packed: &[u8], out: &mut Vec<u8>) -> Result<usize, Fault> {
        let mut out = LimitedBuffer::new(out, self.limit);
        match codec {
            1 => gzip(packed, &mut out)?,
            2 => snappy(packed, &mut out)?,
            3 => lz4::decompress(packed, &mut out)?,
            4 => self.zstd(packed, &mut out)?,
            _ => return Err(Fault::corrupt(format!("unknown compression codec {codec}"))),
        }
        Ok(out.used())
    }

    /// Decompresses each frame in one call. The streaming interface would take memory for the declared window, up to
    /// 128 MiB, copy every byte once more, and perhaps accept a frame with less data than it declares.
    fn zstd(&mut self, packed: &[u8], out: &mut LimitedBuffer<'_>) -> Result<(), Fault> {
        let context = match &mut self.zstd {
            Some(context) => context,
            none => none.insert(DCtx::try_create().ok_or_else(|| Fault::corrupt("zstd: no memory for a context"))?),
        };
        let mut rest = packed;
        loop {
            let len = zstd_safe::find_frame_compressed_size(rest).map_err(zstd_fault)?;
            let (frame, tail) =
                rest.split_at_checked(len).ok_or_else(|| Fault::corrupt("zstd: a frame is truncated"))?;
            zstd_frame(context, frame, out)?;
            if tail.is_empty() {
                return Ok(());
            }
            rest = tail;
        }
    }
}

fn zstd_frame(context: &mut DCtx<'_>, frame: &[u8], out: &mut LimitedBuffer<'_>) -> Result<(), Fault> {
    let declared =
        zstd_safe::get_frame_content_size(frame).map_err(|_| Fault::corrupt("zstd: a frame has no header"))?;
    if let Some(len) = declared {
        let space = out.space_of(usize::try_from(len).unwrap_or(usize::MAX))?;
        let written = context.decompress(space, frame).map_err(zstd_fault)?;
        out.advance(written);
        return Ok(());
    }
    // Java's producer declares no size, but after a few batches the buffer is large enough for the producer's batches.
    let mut room = out.space().map_or(0, |space| space.len());
    loop {
        match context.decompress(out.space_of(room)?, frame) {
            Ok(written) => {
                out.advance(written);
                return Ok(());
            }
            Err(ZSTD_TOO_SMALL) if room == out.left() => return Err(out.too_large()),
            Err(ZSTD_TOO_SMALL) => room = room.saturating_mul(2).min(out.left()),
            Err(code) => return Err(zstd_fault(code)),
        }
    }
}

fn zstd_fault(code: usize) -> Fault {
    Fault::corrupt(format!("zstd: {}", zstd_safe::get_error_name(code)))
}

fn gzip(packed: &[u8], out: &mut LimitedBuffer<'_>) -> Result<(), Fault> {
    let failed = |error: io::Error| Fault::corrupt(format!("gzip: {error}"));
    let mut reader = MultiGzDecoder::new(packed);
    loop {
        let read = match out.space() {
            Ok(space) => reader.read(space).map_err(failed)?,
            // If the output is at the limit and the input has more data, the batch is too large.
            Err(too_large) if reader.read(&mut [0]).map_err(failed)? > 0 => return Err(too_large),
            Err(_) => 0,
        };
        if read == 0 {
            return Ok(());
        }
        out.advance(read);
    }
}

fn snappy(packed: &[u8], out: &mut LimitedBuffer<'_>) -> Result<(), Fault> {
    if !packed.starts_with(XERIAL_MAGIC) {
        return snappy_block(packed, out);
    }
    let ends_early = || Fault::corrupt("snappy: a framed block is truncated");
    let mut rest = packed;
    while !rest.is_empty() {
        // The data may consist of several streams, each with its own header.
        if rest.starts_with(XERIAL_MAGIC) {
            rest = rest.get(XERIAL_HEADER_LEN..).ok_or_else(ends_early)?;
            continue;
        }
        let (len, tail) = rest.split_first_chunk::<4>().ok_or_else(ends_early)?;
        let (block, tail) = usize::try_from(i32::from_be_bytes(*len))
            .ok()
            .and_then(|len| tail.split_at_checked(len))
            .ok_or_else(ends_early)?;
        snappy_block(block, out)?;
        rest = tail;
    }
    Ok(())
}

fn snappy_block(block: &[u8], out: &mut LimitedBuffer<'_>) -> Result<(), Fault> {
    let failed = |error: snap::Error| Fault::corrupt(format!("snappy: {error}"));
    let len = snap::raw::decompress_len(block).map_err(failed)?;
    if len > block.len().saturating_mul(SNAPPY_MOST) {
        return Err(Fault::corrupt(format!("snappy: a block of {} bytes declares a size of {len}", block.len())));
    }
    let written = snap::raw::Decoder::new().decompress(block, out.space_of(len)?).map_err(failed)?;
    out.advance(written);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::error::Kind;
    use crate::limited_buffer::STEP;

    fn packed(codec: i16, bytes: &[u8]) -> Vec<u8> {
        match codec {
            1 => {
                let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            2 => snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
            3 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(vec![]);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            _ => {
                let mut out = vec![0; zstd_safe::compress_bound(bytes.len())];
                let len = zstd_safe::compress(&mut out[..], bytes, 3).unwrap();
                out.truncate(len);
                out
            }
        }
    }

    fn xerial(blocks: &[&[u8]]) -> Vec<u8> {
        let mut out = [XERIAL_MAGIC, &[0, 0, 0, 1, 0, 0, 0, 1]].concat();
        for block in blocks {
            let packed = packed(2, block);
            out.extend((packed.len() as i32).to_be_bytes());
            out.extend(packed);
        }
        out
    }

    fn unpack(limit: usize, codec: i16, bytes: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut out = vec![];
        let len = Decompressor::new(limit).decompress(codec, bytes, &mut out)?;
        out.truncate(len);
        Ok(out)
    }

    fn text(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i / 7 * 31 % 251) as u8).collect()
    }

    #[test]
    fn every_codec_round_trips_at_every_size() {
        for codec in 1..=4 {
            for len in [0, 1, 100, STEP - 1, STEP, STEP + 1, 300_000] {
                assert_eq!(unpack(1 << 20, codec, &packed(codec, &text(len))).unwrap(), text(len), "{codec} {len}");
            }
        }
    }

    #[test]
    fn no_memory_is_taken_beyond_the_limit() {
        let limit = 3 * STEP + 10;
        for codec in 1..=4 {
            for (len, fits) in [(limit, true), (limit + 1, false), (4 * limit, false)] {
                let mut out = vec![];
                let outcome = Decompressor::new(limit).decompress(codec, &packed(codec, &text(len)), &mut out);
                assert_eq!(outcome.is_ok(), fits, "{codec} {len}");
                assert!(out.capacity() <= limit, "{codec} {len}: {}", out.capacity());
            }
        }
    }

    #[test]
    fn framed_snappy_may_hold_several_streams() {
        let bytes = [xerial(&[b"one ", b"two "]), xerial(&[b"three"])].concat();
        assert_eq!(unpack(100, 2, &bytes).unwrap(), b"one two three");
    }

    #[test]
    fn what_is_cut_is_refused() {
        let framed = xerial(&[&text(1000), &text(500)]);
        for end in XERIAL_HEADER_LEN + 1..framed.len() {
            if end == XERIAL_HEADER_LEN + 4 + packed(2, &text(1000)).len() {
                continue; // A cut between two blocks leaves a valid stream; only the record count shows the loss.
            }
            assert!(unpack(1 << 20, 2, &framed[..end]).is_err(), "{end}");
        }
        for codec in [1, 2, 4] {
            let bytes = packed(codec, &text(1000));
            for end in 1..bytes.len() {
                assert!(unpack(1 << 20, codec, &bytes[..end]).is_err(), "{codec} {end}");
            }
        }
    }

    #[test]
    fn a_small_block_that_claims_much_is_refused_before_memory_is_taken() {
        let mut out = vec![];
        let claims = [0xff, 0xff, 0xff, 0x7f, 0];
        let error = Decompressor::new(usize::MAX).decompress(2, &claims, &mut out).unwrap_err();
        assert_eq!(error.kind, Kind::Corrupt);
        assert!(out.is_empty());
    }

    fn zstd_stream(bytes: &[u8], pledged: Option<u64>) -> Vec<u8> {
        let mut context = zstd_safe::CCtx::create();
        context.set_pledged_src_size(pledged).unwrap();
        let mut out = vec![0; zstd_safe::compress_bound(bytes.len()) + 64];
        let mut output = zstd_safe::OutBuffer::around(&mut out[..]);
        context.compress_stream(&mut output, &mut zstd_safe::InBuffer::around(bytes)).unwrap();
        while context.end_stream(&mut output).unwrap() > 0 {}
        let len = output.pos();
        out.truncate(len);
        out
    }

    #[test]
    fn zstd_frames_of_javas_producer_declare_no_size() {
        for len in [0, 1, STEP, STEP + 1, 3 * STEP, 300_000] {
            let bytes = zstd_stream(&text(len), None);
            assert!(matches!(zstd_safe::get_frame_content_size(&bytes), Ok(None)));
            assert_eq!(unpack(len, 4, &bytes).unwrap(), text(len), "{len}");
            if len > 0 {
                assert_eq!(unpack(len - 1, 4, &bytes).unwrap_err().kind, Kind::TooLarge, "{len}");
            }
        }
    }

    #[test]
    fn zstd_frames_may_follow_one_another() {
        let bytes = [zstd_stream(&text(70_000), None), packed(4, b"two"), zstd_stream(b"three", None)].concat();
        assert_eq!(unpack(1 << 20, 4, &bytes).unwrap(), [&text(70_000)[..], b"two", b"three"].concat());
    }

    /// Found by fuzzing: 16 bytes and an empty last block in a frame that declares 105 bytes. In a buffer that is
    /// smaller than 105 bytes, zstd's streaming decoder accepts this frame.
    #[test]
    fn a_zstd_frame_with_less_than_it_declares_is_refused_into_every_buffer() {
        let frame = [&b"\x28\xb5\x2f\xfd\x20\x69\x80\0\0"[..], &[7; 16], b"\x01\0\0"].concat();
        for room in [0, 95, 1000] {
            let error = Decompressor::new(1 << 20).decompress(4, &frame, &mut vec![0; room]).unwrap_err();
            assert_eq!(error.kind, Kind::Corrupt, "{room}");
        }
    }

    #[test]
    fn a_context_that_failed_does_not_spoil_the_next_batch() {
        let mut decompressor = Decompressor::new(1 << 20);
        let bytes = packed(4, &text(1000));
        assert!(decompressor.decompress(4, &bytes[..bytes.len() / 2], &mut vec![]).is_err());
        assert_eq!(decompressor.decompress(4, &bytes, &mut vec![]).unwrap(), 1000);
        assert!(decompressor.decompress(5, &bytes, &mut vec![]).is_err());
    }
}
