//! Runs the fuzzers' functions over the inputs that are kept in the repository, `tests/fuzz/corpus`.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod fuzzed;
mod support;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use support::changes::{Rng, mutate};
use support::{CODECS, Codec, Row, Shape, batch};

const CHANGED: usize = 1_500;

/// The kept inputs of a target, in the order of their names.
fn kept(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    assert!(!paths.is_empty(), "no inputs in {}", folder.display());
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

fn run(name: &str, target: fn(&[u8]), input: &[u8]) {
    assert!(catch_unwind(|| target(input)).is_ok(), "{name} of {input:02x?}");
}

#[test]
fn every_kept_input_keeps_every_promise() {
    for (name, target) in fuzzed::TARGETS {
        for input in kept(name) {
            run(name, target, &input);
        }
    }
}

/// Without coverage as a guide, but from the inputs that it has found.
#[test]
fn changed_inputs_keep_every_promise() {
    for (name, target) in fuzzed::TARGETS {
        let inputs = kept(name);
        let mut rng = Rng(0);
        for _ in 0..CHANGED {
            let mut input = inputs[rng.below(inputs.len())].clone();
            mutate(&mut rng, &mut input, |_| false);
            run(name, target, &input);
        }
    }
}

#[test]
fn the_shortest_inputs_are_inputs() {
    for (_, target) in fuzzed::TARGETS {
        target(&[]);
        for first in 0..=u8::MAX {
            target(&[first]);
            target(&[first; 7]);
            target(&[first; 100]);
        }
    }
}

/// Writes valid inputs, from which libFuzzer starts: `cargo test --no-default-features --test corpus -- --ignored`.
#[test]
#[ignore = "writes files into the repository"]
fn write_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus");
    let write = |target: &str, name: &str, bytes: &[u8]| {
        fs::create_dir_all(folder.join(target)).unwrap();
        fs::write(folder.join(target).join(format!("seed-{name}")), bytes).unwrap();
    };
    let rows: Vec<Row> = (0..3)
        .map(|i| Row {
            offset: 1000 + 2 * i,
            timestamp_ms: 1_600_000_000_000 + i,
            log_append: false,
            key: (i > 0).then(|| format!("key {i}").into_bytes()),
            value: (i != 1).then(|| b"value ".repeat(5)),
            headers: (0..i).map(|j| (format!("h{j}").into_bytes(), (j > 0).then(|| vec![1, 2]))).collect(),
        })
        .collect();
    for codec in CODECS {
        let shape = Shape {
            codec,
            base_offset: 1000,
            last_offset_delta: 4,
            base_timestamp: 1_600_000_000_000,
            log_append_time: None,
            producer_id: 1,
            transactional: codec == Codec::Zstd,
            control: false,
        };
        let name = format!("{codec:?}").to_lowercase();
        write("record_set", &name, &[vec![0], batch(&shape, &rows)].concat());
        write("codec", &name, &[vec![codec.id() as u8, 3], codec.pack(&b"some text ".repeat(9))].concat());
    }
    let marker = Row { key: Some(vec![0, 0, 0, 0]), value: Some(vec![0; 6]), ..rows[0].clone() };
    let shape = Shape {
        codec: Codec::None,
        base_offset: 1000,
        last_offset_delta: 0,
        base_timestamp: 1_600_000_000_000,
        log_append_time: None,
        producer_id: 1,
        transactional: true,
        control: true,
    };
    write("record_set", "control", &[vec![2], batch(&shape, &[marker])].concat());
    for flags in [0, 8, 16 + 1, 32 + 2, 8 + 16 + 32 + 4] {
        // Flags, partitions, rows, sizes and the sticky partition; then the columns.
        let mut bytes = vec![flags, 3, 3, 100, 100, 1];
        for data in [&b"abcdef"[..], b"kkkk", b"h1h2", b"vvvv"] {
            bytes.extend([0, 4, 0, 2, 2, 4, data.len() as u8]);
            bytes.extend(data);
        }
        bytes.extend([3, 0, 1, 2, 1, 7, 4, 0, 1, 1, 2]);
        write("encoder", &flags.to_string(), &bytes);
    }
}
