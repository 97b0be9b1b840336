//! Random changes of bytes.

/// SplitMix64: the same mutations on every machine.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| if self.chance(3) { self.next() as u8 } else { b'a' }).collect()
    }
}

/// Changes some bytes, except those at the positions `kept`.
pub fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>, kept: impl Fn(usize) -> bool) {
    for _ in 0..1 + rng.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.below(bytes.len());
        if kept(at) {
            continue;
        }
        match rng.below(8) {
            0..=2 => bytes[at] ^= 1 << rng.below(8),
            3 => bytes[at] = rng.next() as u8,
            4 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, 0xfe][rng.below(6)],
            5 => bytes.truncate(at),
            6 => {
                let end = (at + 1 + rng.below(9)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                let some = rng.bytes(9);
                bytes.splice(at..at, some);
            }
        }
    }
}
