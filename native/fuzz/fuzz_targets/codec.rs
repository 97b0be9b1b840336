#![no_main]

#[path = "../../tests/fuzzed/mod.rs"]
mod fuzzed;
#[path = "../../tests/support/mod.rs"]
mod support;

// An allocation beyond it ends the process, which libFuzzer reports. Every limit that the functions set is far below.
#[global_allocator]
static MEMORY: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, 64 << 20);

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzed::codec(data));
