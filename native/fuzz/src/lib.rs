//! The bounds that every target has: memory and time.

use std::time::Duration;

use cpu_time::ThreadTime;

// An allocation beyond it ends the process, which libFuzzer reports. Every limit that the functions set is far below.
#[global_allocator]
static MEMORY: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, 64 << 20);

const LONGEST: Duration = Duration::from_secs(1);

/// Call `parse`; panic if it took more than a second of this thread's CPU time.
///
/// Not of the clock on the wall: on a busy machine a process waits for longer than any input takes. An input that
/// never ends is ended by libFuzzer's `-timeout`.
pub fn bounded(parse: fn(&[u8]), data: &[u8]) {
    let began = ThreadTime::now();
    parse(data);
    let took = began.elapsed();
    assert!(took < LONGEST, "{took:?} for {} bytes", data.len());
}
