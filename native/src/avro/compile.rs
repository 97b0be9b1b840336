//! Compiles a writer schema and the reader schema into a plan, or returns why they do not match.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::defaults;
use super::matching::Pair;
use super::plan::{Action, Default, Items, Op, Plan, Record, Step};
use super::schema::{Id, Kind, Logical, Schema, Unit};
use super::shape::{Choice, choice};
use super::skip::{Skip, Skips};
use crate::values::column::MISMATCH;
use crate::values::fault::Fault;
use crate::values::slot::{Part, Shape, Slot};

/// The limit on the size of a plan, and on the steps that compile it.
const MAX_OPS: usize = 500_000;

/// Compiles the plan for values of the writer schema, to which aliases are applied.
///
/// Fails, with the path of the fault, if no value of the writer schema can be read.
pub fn compile(writer: &Schema, reader: &Schema, slot: &Slot) -> Result<Plan, Fault> {
    let plan = Compiler::new(Pair { writer, reader }, MAX_OPS).plan(writer.root, reader.root, slot)?.0;
    match certain_error(&plan.op) {
        Some(fault) => Err(fault),
        None => Ok(plan),
    }
}

/// Returns the error with which the decoding of every value would fail, if any.
fn certain_error(op: &Op) -> Option<Fault> {
    match op {
        Op::Error(fault) => Some(fault.clone()),
        Op::Record(record) => {
            let steps = record.steps.iter().find_map(|step| match &step.action {
                Action::Read { op, .. } => certain_error(op).map(|fault| fault.within(&step.name)),
                Action::Skip(_) => None,
            });
            let mut defaults = record.defaults.iter();
            steps.or_else(|| defaults.find_map(|default| Some(certain_error(&default.plan.op)?.within(&default.name))))
        }
        Op::Member { op, .. } => certain_error(op),
        Op::Union(branches) => {
            let mut faults = branches.iter().map(certain_error);
            let first = faults.next().flatten()?;
            faults.all(|fault| fault.is_some()).then_some(first)
        }
        _ => None,
    }
}

struct Compiler<'a> {
    pair: Pair<'a>,
    skips: Skips,
    steps: usize,
    has_json: bool,
}

impl<'a> Compiler<'a> {
    fn new(pair: Pair<'a>, steps: usize) -> Self {
        Self { pair, skips: Skips::default(), steps, has_json: false }
    }

    /// Returns the plan and the remaining steps.
    fn plan(mut self, w: Id, r: Id, slot: &Slot) -> Result<(Plan, usize), Fault> {
        let op = self.compile(w, r, slot)?;
        let writer = self.has_json.then(|| self.pair.writer.clone());
        Ok((Plan { op, skips: self.skips, writer }, self.steps))
    }

    fn compile(&mut self, w: Id, r: Id, slot: &Slot) -> Result<Op, Fault> {
        self.steps = self.steps.saturating_sub(1);
        if self.steps == 0 {
            return Err(Fault::new("the writer schema and the reader schema are too large to be resolved"));
        }
        let (writer, reader) = (self.pair.writer, self.pair.reader);
        match (writer.kind(w), reader.kind(r)) {
            (Kind::Union(written), Kind::Union(read)) if self.pair.equivalent(w, r) => {
                let branches = written.iter().zip(0..read.len());
                Ok(Op::Union(branches.map(|(&w, i)| self.branch(w, read, i, slot)).collect::<Result<_, _>>()?))
            }
            (Kind::Union(written), _) => {
                Ok(Op::Union(written.iter().map(|&w| self.compile(w, r, slot)).collect::<Result<_, _>>()?))
            }
            (_, Kind::Union(read)) => match self.pair.branch(w, read, &mut self.steps) {
                Some(i) => self.branch(w, read, i, slot),
                None => Ok(self.mismatch(w, r)),
            },
            _ if !self.pair.fits(w, r) => Ok(self.mismatch(w, r)),
            (Kind::Null, _) => Ok(Op::Null),
            (Kind::Int | Kind::Long | Kind::Bytes | Kind::Fixed(_) | Kind::String, _)
                if reader.get(r).logical.is_some() =>
            {
                Ok(self.logical(w, r, slot).unwrap_or_else(|| self.mismatch(w, r)))
            }
            (Kind::Boolean, _) => Ok(Op::Boolean),
            (Kind::Int, Kind::Float) => Ok(Op::IntAsFloat),
            (Kind::Int, _) => Ok(Op::Int),
            (Kind::Long, Kind::Float) => Ok(Op::LongAsFloat),
            (Kind::Long, _) => Ok(Op::Long),
            (Kind::Float, _) => Ok(Op::Float),
            (Kind::Double, _) => Ok(Op::Double),
            (Kind::Bytes | Kind::String, _) => Ok(Op::Bytes),
            (Kind::Fixed(size), _) => Ok(Op::Fixed(*size)),
            (Kind::Enum { symbols, .. }, Kind::Enum { symbols: known, default }) => {
                let known =
                    |symbol: &Arc<str>| known.contains(symbol).then(|| symbol.clone()).or_else(|| default.clone());
                Ok(Op::Enum(symbols.iter().map(known).collect()))
            }
            (&Kind::Array(w), &Kind::Array(r)) => match &slot.shape {
                Shape::List(item) => Ok(Op::Array(Box::new(self.items(w, r, item, item.bits_of_item())?))),
                _ => Err(Fault::new(MISMATCH)),
            },
            (&Kind::Map(w), &Kind::Map(r)) => match &slot.shape {
                Shape::Map(entry) => Ok(Op::Map(Box::new(self.items(w, r, &entry.value, entry.bits())?))),
                _ => Err(Fault::new(MISMATCH)),
            },
            (Kind::Record(_), _) => match &slot.shape {
                Shape::Struct(parts) => self.record(w, r, parts),
                Shape::Json => {
                    self.has_json = true;
                    Ok(Op::Json(w))
                }
                _ => Err(Fault::new(MISMATCH)),
            },
            (Kind::Enum { .. } | Kind::Array(_) | Kind::Map(_), _) => Err(Fault::new(MISMATCH)),
        }
    }

    /// Returns how a value is read as the reader's logical type; None if the value has another logical type. A value
    /// without a logical type counts as a value of the reader's logical type.
    fn logical(&self, w: Id, r: Id, slot: &Slot) -> Option<Op> {
        const NANOS_OF_DAY: i64 = 86_400_000_000_000;
        let (writer, reader) = (self.pair.writer.get(w), self.pair.reader.get(r));
        let is_int = matches!(writer.kind, Kind::Int);
        let plain = || match &writer.kind {
            Kind::Int => Op::Int,
            Kind::Long => Op::Long,
            Kind::Fixed(size) => Op::Fixed(*size),
            _ => Op::Bytes,
        };
        let wanted = reader.logical.as_ref()?;
        let nanos = match (writer.logical.as_ref().unwrap_or(wanted), wanted) {
            (Logical::Date, Logical::Date) => return Some(plain()),
            (Logical::Decimal { scale, .. }, Logical::Decimal { .. }) => {
                let Shape::Decimal { scale: of_column, .. } = slot.shape else { return None };
                let size = if let Kind::Fixed(size) = writer.kind { Some(size) } else { None };
                let shift = i32::from(of_column).checked_sub(i32::try_from(*scale).ok()?)?;
                // The bytes of a string are not read as a decimal.
                return (!matches!(writer.kind, Kind::String)).then_some(Op::Decimal { size, shift });
            }
            (Logical::Date, Logical::Timestamp { .. }) => NANOS_OF_DAY,
            (Logical::Time(unit), Logical::Time(_)) => unit.nanos(),
            (Logical::Timestamp { unit, utc }, Logical::Timestamp { utc: wanted, .. }) if utc == wanted => unit.nanos(),
            _ => return None,
        };
        let own = match (&slot.shape, wanted) {
            (Shape::Timestamp { .. }, _) => Unit::Micros,
            (_, Logical::Time(unit) | Logical::Timestamp { unit, .. }) => *unit,
            _ => return None,
        };
        Some(match (nanos / own.nanos(), is_int) {
            (1, _) => plain(),
            (0, _) => Op::LongParts(own.nanos() / nanos),
            (units, true) => Op::IntTimes(units),
            (units, false) => Op::LongTimes(units),
        })
    }

    fn mismatch(&self, w: Id, r: Id) -> Op {
        let (written, read) = (self.pair.writer.describe(w), self.pair.reader.describe(r));
        Op::Error(Fault::new(format!("{written} of the writer schema cannot be read as {read}")))
    }

    /// Compiles how the writer's type `w` is read as branch `i` of the reader's union.
    fn branch(&mut self, w: Id, read: &[Id], i: usize, slot: &Slot) -> Result<Op, Fault> {
        let reader = self.pair.reader;
        let Some(&r) = read.get(i) else { return Err(Fault::new(MISMATCH)) };
        if matches!(reader.kind(r), Kind::Null) {
            return Ok(if self.pair.fits(w, r) { Op::Null } else { self.mismatch(w, r) });
        }
        let Choice::Members(branches) = choice(reader, read) else { return self.compile(w, r, slot) };
        let Shape::Struct(parts) = &slot.shape else { return Err(Fault::new(MISMATCH)) };
        let source = branches.iter().position(|&branch| branch == r);
        let skip = self.skips.of_type(self.pair.writer, w)?;
        match parts.iter().position(|part| Some(part.source) == source).and_then(|i| Some((i, parts.get(i)?))) {
            Some((i, part)) => {
                let op = Box::new(self.compile(w, r, &part.slot)?);
                Ok(Op::Member { part: Some(i), op, skip })
            }
            None => Ok(Op::Member { part: None, op: Box::new(Op::Null), skip }),
        }
    }

    fn items(&mut self, w: Id, r: Id, slot: &Slot, bits: u64) -> Result<Items, Fault> {
        Ok(Items { op: self.compile(w, r, slot)?, bits })
    }

    fn record(&mut self, w: Id, r: Id, parts: &[Part]) -> Result<Op, Fault> {
        let (writer, reader) = (self.pair.writer, self.pair.reader);
        let (Kind::Record(written), Kind::Record(read)) = (writer.kind(w), reader.kind(r)) else {
            return Err(Fault::new(MISMATCH));
        };
        let shown = parts.iter().enumerate().filter_map(|(i, part)| Some((&read.get(part.source)?.name, (i, part))));
        let shown: HashMap<_, _> = shown.collect();
        let mut steps = vec![];
        for field in written {
            let action = match shown.get(&field.name) {
                Some(&(i, part)) => {
                    let Some(read) = read.get(part.source) else { continue };
                    Action::Read { part: i, op: self.compile(field.kind, read.kind, &part.slot)? }
                }
                None => match self.skips.of_type(writer, field.kind)? {
                    // Leave the field out: each step has to take a byte or add a value, to bound the time for an item.
                    Skip::Bytes(0) => continue,
                    skip => Action::Skip(skip),
                },
            };
            steps.push(Step { name: field.name.clone(), action });
        }
        let names: HashSet<_> = written.iter().map(|field| &field.name).collect();
        let mut missing = vec![];
        for (i, part) in parts.iter().enumerate() {
            let Some(field) = read.get(part.source) else { continue };
            if names.contains(&field.name) {
                continue;
            }
            let Some(json) = &field.default else {
                let reason = "the writer schema does not have the field, and the reader schema has no default for it";
                return Ok(Op::Error(Fault::new(reason).within(&field.name)));
            };
            let same = Compiler::new(Pair { writer: reader, reader }, self.steps);
            let (bytes, plan) = match defaults::encode(reader, field.kind, json) {
                Ok(bytes) => {
                    let (plan, steps) = same.plan(field.kind, field.kind, &part.slot)?;
                    self.steps = steps;
                    (bytes, plan)
                }
                Err(fault) => (vec![], Plan { op: Op::Error(fault), skips: Skips::default(), writer: None }),
            };
            missing.push(Default { name: field.name.clone(), part: i, bytes, plan });
        }
        Ok(Op::Record(Box::new(Record { steps, defaults: missing })))
    }
}
