//! Reads LZ4 frames and decompresses their blocks with lz4_flex.
//!
//! A Kafka batch is often a frame of 16 KiB, but lz4_flex's own reader allocates and clears up to 8 MiB for each frame,
//! and copies each block twice. This module decompresses blocks directly into the batch's buffer. The frame's xxHash
//! checksums are not verified, because the batch's CRC-32C covers the same bytes.

use crate::error::Fault;
use crate::limited_buffer::LimitedBuffer;

const MAGIC: u32 = 0x184d_2204;
/// How far back a block in a frame of linked blocks may refer, in bytes.
const WINDOW: usize = 64 << 10;
/// The highest compression ratio of LZ4: the output bytes that one input byte can encode.
const MOST: usize = 255;

/// Decompresses one frame and ignores the bytes after it, as Kafka's reader does.
pub fn decompress(packed: &[u8], out: &mut LimitedBuffer<'_>) -> Result<(), Fault> {
    let mut rest = packed;
    let magic = u32::from_le_bytes(chunk(&mut rest)?);
    if magic != MAGIC {
        return Err(Fault::corrupt(format!("lz4: a frame starts with {magic:08x}")));
    }
    let [flags, descriptor] = chunk(&mut rest)?;
    let has = |bit: u8| flags & bit != 0;
    if flags >> 6 != 1 || has(0x01) {
        return Err(Fault::corrupt(format!("lz4: unknown frame flags {flags:02x}")));
    }
    let most = match descriptor >> 4 & 7 {
        size @ 4..=7 => 1usize << (8 + 2 * size),
        size => return Err(Fault::corrupt(format!("lz4: unknown block size {size}"))),
    };
    if has(0x08) {
        chunk::<8>(&mut rest)?; // The content size, not needed, because the record count is checked.
    }
    chunk::<1>(&mut rest)?; // The header's checksum.
    let linked = !has(0x20);
    let start = out.used();
    loop {
        let raw = u32::from_le_bytes(chunk(&mut rest)?);
        if raw == 0 {
            return Ok(());
        }
        let len = (raw & 0x7fff_ffff) as usize;
        let (block, tail) = rest.split_at_checked(len).ok_or_else(ends_early)?;
        rest = tail;
        if raw >> 31 == 1 {
            out.space_of(len)?.copy_from_slice(block);
            out.advance(len);
        } else {
            unpack(block, most.min(len.saturating_mul(MOST)), linked.then_some(start), out)?;
        }
        if has(0x10) {
            chunk::<4>(&mut rest)?; // The block's checksum.
        }
    }
}

/// Decompresses a block to at most `most` bytes; it may refer back to the position `history` in `out`.
fn unpack(block: &[u8], most: usize, history: Option<usize>, out: &mut LimitedBuffer<'_>) -> Result<(), Fault> {
    let room = most.min(out.left());
    let (before, space) = out.split(room)?;
    let reach = before.len().saturating_sub(WINDOW).max(history.unwrap_or(before.len()));
    let dictionary = before.get(reach..).unwrap_or_default();
    let unpacked = if dictionary.is_empty() {
        lz4_flex::block::decompress_into(block, space)
    } else {
        lz4_flex::block::decompress_into_with_dict(block, space, dictionary)
    };
    match unpacked {
        Ok(len) => {
            out.advance(len);
            Ok(())
        }
        Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if room < most => Err(out.too_large()),
        Err(error) => Err(Fault::corrupt(format!("lz4: {error}"))),
    }
}

fn chunk<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Fault> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or_else(ends_early)?;
    *rest = tail;
    Ok(*head)
}

fn ends_early() -> Fault {
    Fault::corrupt("lz4: the frame is truncated")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

    use super::*;
    use crate::error::Kind;

    fn unpacked(frame: &[u8], mut buffer: Vec<u8>) -> Result<Vec<u8>, Fault> {
        let mut out = LimitedBuffer::new(&mut buffer, 1 << 20);
        decompress(frame, &mut out)?;
        let used = out.used();
        buffer.truncate(used);
        Ok(buffer)
    }

    fn noisy(len: usize) -> Vec<u8> {
        let mut state = 1u32;
        (0..len)
            .map(|i| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if i / 500 % 3 == 0 { (state >> 24) as u8 } else { (i / 9 % 100) as u8 }
            })
            .collect()
    }

    fn frame(info: FrameInfo, bytes: &[u8]) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, vec![]);
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn frames(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut out = vec![];
        for mode in [BlockMode::Independent, BlockMode::Linked] {
            for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max4MB] {
                for sums in [false, true] {
                    let info = FrameInfo::new()
                        .block_mode(mode)
                        .block_size(size)
                        .block_checksums(sums)
                        .content_checksum(sums)
                        .content_size(sums.then_some(bytes.len() as u64));
                    out.push(frame(info, bytes));
                }
            }
        }
        out
    }

    #[test]
    fn every_kind_of_frame_round_trips() {
        for len in [0, 1, 1000, 65_536, 200_000, 700_000] {
            for frame in frames(&noisy(len)) {
                assert!(unpacked(&frame, vec![]).unwrap() == noisy(len), "{len}");
            }
        }
    }

    #[test]
    fn a_cut_frame_is_refused_and_so_is_a_dictionary() {
        for frame in frames(&noisy(3000)).iter().step_by(2) {
            for end in 0..frame.len() {
                assert_eq!(unpacked(&frame[..end], vec![]).unwrap_err().kind, Kind::Corrupt);
            }
            let mut with_dictionary = frame.clone();
            with_dictionary[4] |= 1;
            assert!(unpacked(&with_dictionary, vec![]).is_err());
        }
    }

    #[test]
    fn a_buffer_in_use_before_is_no_history() {
        // One literal, a match of four bytes that reaches `back`, five literals.
        let unpack = |back: u8| {
            let frame = [
                &[0x04, 0x22, 0x4d, 0x18, 0x40, 0x40, 0, 10, 0, 0, 0][..],
                &[0x10, b'a', back, 0, 0x50, b'b', b'c', b'd', b'e', b'f', 0, 0, 0, 0],
            ]
            .concat();
            unpacked(&frame, b"secret bytes of another batch".to_vec())
        };
        assert_eq!(unpack(1).unwrap(), b"aaaaabcdef");
        assert_eq!(unpack(8).unwrap_err().kind, Kind::Corrupt);
    }

    #[test]
    fn a_block_is_no_larger_than_its_frame_allows() {
        let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max256KB);
        let mut frame = frame(info, &[7; 100_000]);
        for (size, outcome) in [(3, Err(Kind::Corrupt)), (4, Err(Kind::Corrupt)), (5, Ok(100_000)), (7, Ok(100_000))] {
            frame[5] = size << 4;
            let unpacked = unpacked(&frame, vec![]);
            assert_eq!(unpacked.map(|bytes| bytes.len()).map_err(|fault| fault.kind), outcome, "{size}");
        }
    }
}
