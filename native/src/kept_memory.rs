//! Makes malloc keep the memory of batches that were sent, for the batches that follow.

use std::hint::black_box;
use std::sync::Once;

/// The size of the freed block. The heap keeps unused memory of at most twice this size at its end.
const BLOCK: usize = 16 << 20;

/// Makes glibc's malloc keep freed blocks of up to [`BLOCK`] bytes in this process.
///
/// An encoder allocates and frees blocks of a batch's size (1 MB) all the time. By default glibc maps each block of
/// more than 128 KiB separately and unmaps it when it is freed. The page faults in the next batch took two thirds of
/// the CPU time for values of 1 kB. Freeing a mapped block raises this threshold to the block's size, up to 32 MiB
/// (`mallopt(3)`, M_MMAP_THRESHOLD). With another malloc, this function has no effect.
pub fn keep_freed_blocks() {
    static DONE: Once = Once::new();
    // `black_box` is needed, because the compiler may leave out an unused allocation.
    DONE.call_once(|| drop(black_box(Vec::<u8>::with_capacity(BLOCK))));
}
