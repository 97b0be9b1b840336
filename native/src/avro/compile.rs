//! Compiles a writer schema and the reader schema into a plan, or says why they do not match.

use std::sync::Arc;

use super::defaults;
use super::matching::Pair;
use super::plan::{Action, Default, Items, Op, Plan, Record, Step};
use super::run;
use super::schema::{Id, Kind, Schema};
use super::shape::{Choice, choice};
use super::skip::{Skip, Skips};
use crate::values::column::MISMATCH;
use crate::values::fault::Fault;
use crate::values::slot::{Part, Shape, Slot};

/// The limit on the size of a plan and on the steps to compile it.
const MAX_OPS: usize = 500_000;

/// Compiles the plan for values of the writer schema, whose aliases are applied.
///
/// Fails with the path if no value of the writer schema can be read.
pub fn compile(writer: &Schema, reader: &Schema, slot: &Slot) -> Result<Plan, Fault> {
    let mut compiler = Compiler { pair: Pair { writer, reader }, skips: Skips::default(), steps: MAX_OPS };
    let op = compiler.compile(writer.root, reader.root, slot)?;
    match certain_error(&op) {
        Some(fault) => Err(fault),
        None => Ok(Plan { op, skips: compiler.skips }),
    }
}

/// Returns the error that every value has.
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
}

impl Compiler<'_> {
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
                Shape::List(item) => Ok(Op::Array(Box::new(self.items(w, r, item)?))),
                _ => Err(Fault::new(MISMATCH)),
            },
            (&Kind::Map(w), &Kind::Map(r)) => match &slot.shape {
                Shape::Map(entry) => Ok(Op::Map(Box::new(self.items(w, r, &entry.value)?))),
                _ => Err(Fault::new(MISMATCH)),
            },
            (Kind::Record(_), _) => match &slot.shape {
                Shape::Struct(parts) => self.record(w, r, parts),
                _ => Err(Fault::new(MISMATCH)),
            },
            (Kind::Enum { .. } | Kind::Array(_) | Kind::Map(_), _) => Err(Fault::new(MISMATCH)),
        }
    }

    fn mismatch(&self, w: Id, r: Id) -> Op {
        let (written, read) = (self.pair.writer.describe(w), self.pair.reader.describe(r));
        Op::Error(Fault::new(format!("{written} of the writer schema cannot be read as {read}")))
    }

    /// Compiles the reading of `w` as branch `i` of the reader's union.
    fn branch(&mut self, w: Id, read: &[Id], i: usize, slot: &Slot) -> Result<Op, Fault> {
        let reader = self.pair.reader;
        let Some(&r) = read.get(i) else { return Err(Fault::new(MISMATCH)) };
        if matches!(reader.kind(r), Kind::Null) {
            return Ok(if self.pair.fits(w, r) { Op::Null } else { self.mismatch(w, r) });
        }
        let Choice::Members(branches) = choice(reader, read) else { return self.compile(w, r, slot) };
        let Shape::Struct(parts) = &slot.shape else { return Err(Fault::new(MISMATCH)) };
        let source = branches.iter().position(|&branch| branch == r);
        let skip = self.skips.of_type(self.pair.writer, w);
        match parts.iter().position(|part| Some(part.source) == source).and_then(|i| Some((i, parts.get(i)?))) {
            Some((i, part)) => {
                let op = Box::new(self.compile(w, r, &part.slot)?);
                Ok(Op::Member { part: Some(i), op, skip })
            }
            None => Ok(Op::Member { part: None, op: Box::new(Op::Null), skip }),
        }
    }

    fn items(&mut self, w: Id, r: Id, slot: &Slot) -> Result<Items, Fault> {
        let op = self.compile(w, r, slot)?;
        let charge = slot.width() + schema_bytes(&op);
        Ok(Items { op, charge })
    }

    fn record(&mut self, w: Id, r: Id, parts: &[Part]) -> Result<Op, Fault> {
        let (writer, reader) = (self.pair.writer, self.pair.reader);
        let (Kind::Record(written), Kind::Record(read)) = (writer.kind(w), reader.kind(r)) else {
            return Err(Fault::new(MISMATCH));
        };
        let mut steps = vec![];
        for field in written {
            let part = parts.iter().position(|part| read.get(part.source).is_some_and(|read| read.name == field.name));
            let action = match part.and_then(|i| Some((i, parts.get(i)?))) {
                Some((i, part)) => {
                    let Some(read) = read.get(part.source) else { continue };
                    Action::Read { part: i, op: self.compile(field.kind, read.kind, &part.slot)? }
                }
                None => match self.skips.of_type(writer, field.kind) {
                    // So each step takes a byte or adds a value, which bounds the time for an item.
                    Skip::Bytes(0) => continue,
                    skip => Action::Skip(skip),
                },
            };
            steps.push(Step { name: field.name.clone(), action });
        }
        let mut missing = vec![];
        for (i, part) in parts.iter().enumerate() {
            let Some(field) = read.get(part.source) else { continue };
            if written.iter().any(|other| other.name == field.name) {
                continue;
            }
            let Some(json) = &field.default else {
                let reason = "the writer schema does not have the field, and the reader schema has no default for it";
                return Ok(Op::Error(Fault::new(reason).within(&field.name)));
            };
            let mut same =
                Compiler { pair: Pair { writer: reader, reader }, skips: Skips::default(), steps: self.steps };
            let (bytes, op) = match defaults::encode(reader, field.kind, json) {
                Ok(bytes) => (bytes, same.compile(field.kind, field.kind, &part.slot)?),
                Err(fault) => (vec![], Op::Error(fault)),
            };
            self.steps = same.steps;
            let plan = Plan { op, skips: same.skips };
            let charge = bytes.len() + schema_bytes(&plan.op) + run::charge_of(&plan, &part.slot, &bytes);
            missing.push(Default { name: field.name.clone(), part: i, bytes, plan, charge });
        }
        Ok(Op::Record(Box::new(Record { steps, defaults: missing })))
    }
}

/// Returns how many bytes of a value come from the schemas at most: those of defaults and of an enum's symbols. Items of
/// arrays and maps are not counted.
fn schema_bytes(op: &Op) -> usize {
    match op {
        Op::Record(record) => {
            let read = record.steps.iter().map(|step| match &step.action {
                Action::Read { op, .. } => schema_bytes(op),
                Action::Skip(_) => 0,
            });
            let defaults = record.defaults.iter().map(|default| default.charge);
            read.chain(defaults).fold(0, usize::saturating_add)
        }
        Op::Enum(symbols) => symbols.iter().flatten().map(|symbol| symbol.len()).max().unwrap_or(0),
        Op::Union(branches) => branches.iter().map(schema_bytes).max().unwrap_or(0),
        Op::Member { op, .. } => schema_bytes(op),
        _ => 0,
    }
}
