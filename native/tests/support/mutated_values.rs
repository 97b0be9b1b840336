//! Decodes columns of values again and again, with bytes changed in most rows: none may crash, hang, take more memory than
//! the limit allows, or leave a trace in the rows around it.

use std::time::{Duration, Instant};

use kafkagroup_native::arrays::Outside;
use kafkagroup_native::values::budget::MOST;
use kafkagroup_native::values::rows::{Decoded, Failure, Limits, Values};

use crate::changes::{Rng, mutate};

const ROWS: usize = 32;
/// More than a row of any of the schemas takes by itself.
const ROW_BYTES: usize = 2048;
const RECORD_BYTES: usize = 16 << 10;
pub const LIMITS: Limits = Limits { record: RECORD_BYTES, batch: MOST };

type Decode = dyn Fn(&Column) -> Result<Decoded, Failure>;
type Make = dyn Fn(&mut Rng) -> Vec<u8>;

/// A decoder, and what makes random values that it can decode.
pub struct Subject {
    pub decode: Box<Decode>,
    pub value: Box<Make>,
}

pub struct Column(Vec<Option<Vec<u8>>>);

impl Values for Column {
    fn rows(&self) -> usize {
        self.0.len()
    }

    fn get(&self, row: usize) -> Result<Option<&[u8]>, Outside> {
        Ok(self.0[row].as_deref())
    }
}

fn check(decoded: &Decoded, values: &Column) {
    decoded.data.validate_full().unwrap();
    assert_eq!(decoded.data.len(), values.rows());
    let allowed = values.rows() * (ROW_BYTES + RECORD_BYTES);
    let taken = decoded.data.get_slice_memory_size().unwrap();
    assert!(taken <= allowed, "{taken} bytes of {allowed}");
}

#[derive(Default)]
struct Tally {
    good: u64,
    bad: u64,
}

fn run(subjects: &[Subject], mutations: u64, deadline: Instant, first_seed: u64) -> Tally {
    let (mut rng, mut tally) = (Rng(first_seed), Tally::default());
    while tally.good + tally.bad < mutations {
        assert!(Instant::now() < deadline, "{} of {mutations} mutations in the time allowed", tally.good + tally.bad);
        let subject = &subjects[rng.below(subjects.len())];
        let mut values = Column((0..ROWS).map(|_| Some((subject.value)(&mut rng))).collect());
        let original = (subject.decode)(&values).unwrap();
        assert!(original.bad.is_empty(), "{:?}", original.messages);
        check(&original, &values);
        for row in (0..ROWS).filter(|row| row % 4 != 0) {
            mutate(&mut rng, values.0[row].as_mut().unwrap(), |_| false);
        }
        let mutated = (subject.decode)(&values).unwrap();
        check(&mutated, &values);
        assert!(mutated.bad.iter().all(|bad| bad.row % 4 != 0 && bad.message < mutated.messages.len()));
        tally.bad += mutated.bad.len() as u64;
        tally.good += (ROWS - ROWS / 4 - mutated.bad.len()) as u64;
        for bad in &mutated.bad {
            values.0[bad.row] = None;
        }
        let without = (subject.decode)(&values).unwrap();
        assert!(without.bad.is_empty());
        assert!(without.data == mutated.data, "bad rows have left a trace: {:02x?}", values.0);
    }
    tally
}

pub fn some_mutations(subjects: &[Subject]) {
    let tally = run(subjects, 30_000, Instant::now() + Duration::from_secs(300), 1);
    assert!(tally.good > 1000 && tally.bad > 1000);
}

/// `MUTATIONS` (10 million) from `MUTATION_SEED` (1) within `MUTATION_SECONDS` (1500).
pub fn millions_of_mutations(subjects: &[Subject]) {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (mutations, seconds) = (number("MUTATIONS", 10_000_000), number("MUTATION_SECONDS", 1500));
    let start = Instant::now();
    let tally = run(subjects, mutations, start + Duration::from_secs(seconds), number("MUTATION_SEED", 1));
    let total = tally.good + tally.bad;
    println!("{total} mutations in {:.0} s: good {}, bad {}", start.elapsed().as_secs_f64(), tally.good, tally.bad);
}
