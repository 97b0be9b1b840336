//! Decodes millions of mutated record sets: none may crash, hang, or return a row that was not written.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use kafkagroup_native::aborted::AbortedTransactions;
use kafkagroup_native::error::{Error, Kind};
use kafkagroup_native::record_set::RecordSet;
use support::changes::{Rng, mutate};
use support::{
    CODECS, Codec, Row, Shape, batch, batch_of, builder, fix_crc, limits, plain_read, read_all, records, same,
};

const TOPIC: &str = "fuzzed";
const PARTITION: i32 = 3;

/// A valid batch and its rows.
struct Seed {
    shape: Shape,
    records: Vec<u8>,
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

fn seed(rng: &mut Rng, codec: Codec, base_offset: i64) -> Seed {
    let log_append_time = rng.chance(3).then(|| 1_700_000_000_000 + rng.below(1000) as i64);
    let mut shape = Shape {
        codec,
        base_offset,
        last_offset_delta: 0,
        base_timestamp: 1_600_000_000_000,
        log_append_time,
        producer_id: if rng.chance(2) { rng.below(3) as i64 } else { -1 },
        transactional: rng.chance(2),
        control: rng.chance(8),
    };
    let mut offset = base_offset;
    let mut rows = vec![];
    for _ in 0..if shape.control { 1 } else { rng.below(7) } {
        offset += if rng.chance(4) { 1 + rng.below(200) as i64 } else { 0 };
        let headers = (0..rng.below(6).saturating_sub(3))
            .map(|i| (format!("h{i}").into_bytes(), (!rng.chance(3)).then(|| rng.bytes(9))))
            .collect();
        rows.push(Row {
            offset,
            timestamp_ms: log_append_time.unwrap_or(shape.base_timestamp + rng.below(100_000) as i64 - 50_000),
            log_append: log_append_time.is_some(),
            key: if shape.control {
                Some(vec![0, 0, 0, rng.below(2) as u8])
            } else {
                rng.chance(2).then(|| rng.bytes(5))
            },
            value: (!rng.chance(5)).then(|| rng.bytes(90)),
            headers,
        });
        offset += 1;
    }
    shape.last_offset_delta = (offset - base_offset + rng.below(2) as i64 * 5) as i32;
    let (records, bytes) = (records(&shape, &rows), batch(&shape, &rows));
    if shape.control {
        rows.clear();
    }
    Seed { shape, records, bytes, rows }
}

fn check_error(error: &Error) {
    assert_eq!((&*error.topic, error.partition), (TOPIC, PARTITION));
    assert!(error.offset >= 0 && !error.reason.is_empty(), "{error}");
    assert!(error.to_string().contains("fuzzed-3 at offset "), "{error}");
}

#[derive(Default)]
struct Tally {
    whole: u64,
    partial: u64,
    corrupt: u64,
    old_format: u64,
    other: u64,
}

impl Tally {
    fn count(&mut self, error: Option<&Error>, partial: bool) {
        match error.map(|error| error.kind) {
            None if partial => self.partial += 1,
            None => self.whole += 1,
            Some(Kind::Corrupt) => self.corrupt += 1,
            Some(Kind::OldFormat) => self.old_format += 1,
            Some(Kind::Unreadable | Kind::TooLarge) => self.other += 1,
        }
    }
}

fn run(mutations: u64, deadline: Instant, first_seed: u64) -> Tally {
    let mut rng = Rng(first_seed);
    let mut tally = Tally::default();
    let mut builder = builder(limits(5, 400));
    let mut seeds = vec![];
    for i in 0..mutations {
        if i % 4096 == 0 {
            assert!(Instant::now() < deadline, "{i} of {mutations} mutations in the time allowed");
            seeds = (0..24).map(|j| seed(&mut rng, CODECS[j % CODECS.len()], 1000 * (j as i64 + 1))).collect();
        }
        let chosen = rng.below(seeds.len());
        match rng.below(3) {
            0 => as_stored(&mut rng, &seeds, chosen, &mut builder, &mut tally),
            1 => with_a_right_crc(&mut rng, &seeds[chosen], &mut builder, &mut tally),
            _ => inside_the_codec(&mut rng, &seeds[chosen], &mut builder, &mut tally),
        }
    }
    tally
}

fn open(bytes: &[u8], aborted: AbortedTransactions) -> RecordSet<&[u8]> {
    RecordSet::new(bytes, TOPIC.into(), PARTITION, 0, i64::MAX, aborted)
}

/// Two or three batches with bytes changed anywhere: either a check fails, or every row is one that was written.
fn as_stored(
    rng: &mut Rng,
    seeds: &[Seed],
    first: usize,
    builder: &mut kafkagroup_native::builder::BatchBuilder,
    tally: &mut Tally,
) {
    let parts = &seeds[first..(first + 1 + rng.below(3)).min(seeds.len())];
    let expected: Vec<&Row> = parts.iter().flat_map(|seed| &seed.rows).collect();
    let starts: Vec<usize> = parts
        .iter()
        .scan(0, |at, seed| {
            *at += seed.bytes.len();
            Some(*at - seed.bytes.len())
        })
        .collect();
    let original: Vec<u8> = parts.iter().flat_map(|seed| seed.bytes.clone()).collect();
    let mut bytes = original.clone();
    // Kafka's CRC does not cover the base offset and the leader epoch, so changes there cannot be detected.
    mutate(rng, &mut bytes, |at| starts.iter().any(|&start| (start..start + 8).contains(&at)));
    let mut records = open(&bytes, AbortedTransactions::default());
    let (rows, error) = read_all(&mut records, builder);
    let mut left = expected.iter();
    for row in &rows {
        assert!(left.any(|expected| *expected == row), "a row that was not written: {row:?}\n{bytes:02x?}");
    }
    if bytes == original {
        assert!(error.is_none() && rows.len() == expected.len());
    }
    if error.is_none() && records.partial_batch_bytes().is_none() && bytes.len() == original.len() {
        assert_eq!(rows.len(), expected.len(), "rows are missing: {bytes:02x?}");
    }
    if let Some(error) = &error {
        check_error(error);
        assert!(matches!(error.kind, Kind::Corrupt | Kind::OldFormat), "{error}");
        let again = records.append(builder).unwrap_err();
        assert_eq!(&again, error);
    }
    tally.count(error.as_ref(), records.partial_batch_bytes().is_some());
}

/// One batch with bytes changed and a correct CRC: the decoder agrees with the simple reader on every row.
fn with_a_right_crc(
    rng: &mut Rng,
    seed: &Seed,
    builder: &mut kafkagroup_native::builder::BatchBuilder,
    tally: &mut Tally,
) {
    let mut bytes = seed.bytes.clone();
    let structural = rng.chance(2);
    mutate(rng, &mut bytes, |at| (8..21).contains(&at) && !structural);
    if bytes.len() < 61 {
        return;
    }
    if structural {
        let length = bytes.len() as i32 - 12;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
    }
    fix_crc(&mut bytes);
    let aborted = AbortedTransactions::new((0..rng.below(3)).map(|i| (i as i64, rng.below(3000) as i64)));
    let reads_all = aborted.is_empty();
    let mut records = open(&bytes, aborted);
    let (rows, error) = read_all(&mut records, builder);
    let whole = records.partial_batch_bytes().is_none() && bytes.len() == length_of(&bytes);
    if seed.shape.codec == Codec::None && reads_all && whole && bytes[22] & 7 == 0 {
        match (&error, plain_read(&bytes)) {
            (None, Some(expected)) => assert!(same(&rows, &expected), "{rows:?}\n{expected:?}\n{bytes:02x?}"),
            (Some(_), None) => {}
            (error, plain) => panic!("{error:?}\n{plain:?}\n{bytes:02x?}"),
        }
    }
    finish(&records, &rows, error, tally);
}

/// Records changed before compression: the decoder checks them although they decompress without an error.
fn inside_the_codec(
    rng: &mut Rng,
    seed: &Seed,
    builder: &mut kafkagroup_native::builder::BatchBuilder,
    tally: &mut Tally,
) {
    let mut records = seed.records.clone();
    mutate(rng, &mut records, |_| false);
    let count = seed.rows.len().max(1) as i32 + if rng.chance(5) { rng.below(3) as i32 - 1 } else { 0 };
    let plain = Shape { codec: Codec::None, ..seed.shape };
    let expected = plain_read(&batch_of(&plain, count, &records));
    let bytes = batch_of(&seed.shape, count, &records);
    let mut set = open(&bytes, AbortedTransactions::default());
    let (rows, error) = read_all(&mut set, builder);
    match (&error, expected) {
        (None, Some(expected)) => assert!(same(&rows, &expected), "{rows:?}\n{expected:?}"),
        (Some(_), None) => {}
        (error, expected) => panic!("{error:?}\n{expected:?}\n{records:02x?} {:?}", seed.shape),
    }
    finish(&set, &rows, error, tally);
}

fn length_of(bytes: &[u8]) -> usize {
    i32::from_be_bytes(bytes[8..12].try_into().unwrap()) as usize + 12
}

fn finish(records: &RecordSet<&[u8]>, rows: &[Row], error: Option<Error>, tally: &mut Tally) {
    assert!(rows.windows(2).all(|pair| pair[0].offset < pair[1].offset));
    assert!(rows.iter().all(|row| (0..records.next_offset()).contains(&row.offset)));
    if let Some(error) = &error {
        check_error(error);
        assert!(error.offset >= rows.last().map_or(0, |row| row.offset + 1));
    }
    tally.count(error.as_ref(), records.partial_batch_bytes().is_some());
}

#[test]
fn some_mutations() {
    let tally = run(60_000, Instant::now() + Duration::from_secs(300), 1);
    assert!(tally.whole > 1000 && tally.partial > 100 && tally.corrupt > 10_000 && tally.old_format > 10);
}

/// `MUTATIONS` (10 million) from `MUTATION_SEED` (1) within `MUTATION_SECONDS` (1500).
#[test]
#[ignore = "minutes long; run by tests/fuzz"]
fn millions_of_mutations() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (mutations, seconds) = (number("MUTATIONS", 10_000_000), number("MUTATION_SECONDS", 1500));
    let start = Instant::now();
    let tally = run(mutations, start + Duration::from_secs(seconds), number("MUTATION_SEED", 1));
    println!(
        "{mutations} mutations in {:.0} s: whole {}, partial {}, corrupt {}, old format {}, other {}",
        start.elapsed().as_secs_f64(),
        tally.whole,
        tally.partial,
        tally.corrupt,
        tally.old_format,
        tally.other
    );
}
