//! Finds the reader schema's type that reads a writer's type, as Java's `Resolver` does.

use std::collections::HashMap;

use super::schema::{Id, Kind, Schema, simple};

/// Types below this nesting are not compared, because a column has at most 64 levels, and a union or record takes one
/// level.
const MAX_NESTING: usize = 128;

/// A writer schema, to which aliases are applied, and the reader schema.
pub struct Pair<'a> {
    pub writer: &'a Schema,
    pub reader: &'a Schema,
}

impl Pair<'_> {
    fn named_alike(&self, w: Id, r: Id) -> bool {
        simple(self.writer.get(w).name.as_deref()) == simple(self.reader.get(r).name.as_deref())
    }

    /// Returns whether a value of writer type `w` can directly be read as `r`, without comparing the fields of records.
    pub fn fits(&self, w: Id, r: Id) -> bool {
        match (self.writer.kind(w), self.reader.kind(r)) {
            (Kind::Null, Kind::Null)
            | (Kind::Boolean, Kind::Boolean)
            | (Kind::Int, Kind::Int)
            | (Kind::Int | Kind::Long, Kind::Long)
            | (Kind::Int | Kind::Long | Kind::Float, Kind::Float)
            | (Kind::Int | Kind::Long | Kind::Float | Kind::Double, Kind::Double)
            | (Kind::Bytes | Kind::String, Kind::Bytes | Kind::String)
            | (Kind::Array(_), Kind::Array(_))
            | (Kind::Map(_), Kind::Map(_))
            | (Kind::Record(_), Kind::Record(_)) => true,
            (Kind::Fixed(written), Kind::Fixed(read)) => written == read && self.named_alike(w, r),
            (Kind::Enum { .. }, Kind::Enum { .. }) => self.named_alike(w, r),
            _ => false,
        }
    }

    /// Returns the branch of the reader's union `branches` that reads the writer's type `w`, by Java's
    /// `ReaderUnion.firstMatchingBranch`, which accepts more than the specification does.
    pub fn branch(&self, w: Id, branches: &[Id], steps: &mut usize) -> Option<usize> {
        self.branch_within(w, branches, steps, 0)
    }

    fn branch_within(&self, w: Id, branches: &[Id], steps: &mut usize, nesting: usize) -> Option<usize> {
        let written = self.writer.get(w);
        let mut alike = None;
        for (i, &r) in branches.iter().enumerate() {
            let read = self.reader.get(r);
            if std::mem::discriminant(&written.kind) != std::mem::discriminant(&read.kind) {
                continue;
            }
            if written.name == read.name {
                return Some(i);
            }
            let better = || alike.is_none() || self.named_alike(w, r);
            if matches!(read.kind, Kind::Record(_)) && better() && self.structure_fits(w, r, steps, nesting + 1) {
                alike = Some(i);
            }
        }
        alike.or_else(|| {
            branches.iter().position(|&r| {
                matches!(
                    (&written.kind, self.reader.kind(r)),
                    (Kind::Int, Kind::Long | Kind::Float | Kind::Double)
                        | (Kind::Long, Kind::Float | Kind::Double)
                        | (Kind::Float, Kind::Double)
                        | (Kind::String, Kind::Bytes)
                        | (Kind::Bytes, Kind::String)
                )
            })
        })
    }

    /// Returns whether each field of record `r` is read from a field of `w` or has a default; ignores nested fields.
    fn structure_fits(&self, w: Id, r: Id, steps: &mut usize, nesting: usize) -> bool {
        let (Kind::Record(written), Kind::Record(read)) = (self.writer.kind(w), self.reader.kind(r)) else {
            return false;
        };
        read.iter().all(|field| match written.iter().find(|other| other.name == field.name) {
            None => field.default.is_some(),
            Some(other) => self.field_fits(other.kind, field.kind, steps, nesting),
        })
    }

    /// Returns whether Java can resolve a field, even if it cannot resolve a nested part of the field.
    fn field_fits(&self, w: Id, r: Id, steps: &mut usize, nesting: usize) -> bool {
        *steps = steps.saturating_sub(1);
        if *steps == 0 || nesting > MAX_NESTING {
            return false;
        }
        match (self.writer.kind(w), self.reader.kind(r)) {
            (Kind::Union(_), _) => true,
            (_, Kind::Union(branches)) => self.branch_within(w, branches, steps, nesting).is_some(),
            (Kind::Record(written), Kind::Record(read)) => {
                read.iter().all(|field| field.default.is_some() || written.iter().any(|other| other.name == field.name))
            }
            _ => self.fits(w, r),
        }
    }

    /// Returns whether two unions have equivalent branches in the same order, so that each is read as its counterpart.
    pub fn equivalent(&self, w: Id, r: Id) -> bool {
        self.equivalent_types(w, r, &mut HashMap::new(), 0)
    }

    fn equivalent_types(&self, w: Id, r: Id, seen: &mut HashMap<(Id, Id), bool>, nesting: usize) -> bool {
        if nesting > MAX_NESTING {
            return false;
        }
        match (self.writer.kind(w), self.reader.kind(r)) {
            (Kind::Union(written), Kind::Union(read)) => {
                written.len() == read.len()
                    && written.iter().zip(read).all(|(&w, &r)| self.equivalent_types(w, r, seen, nesting + 1))
            }
            (&Kind::Array(w), &Kind::Array(r)) | (&Kind::Map(w), &Kind::Map(r)) => {
                self.equivalent_types(w, r, seen, nesting + 1)
            }
            (Kind::Fixed(written), Kind::Fixed(read)) => written == read && self.named_alike(w, r),
            (Kind::Enum { symbols: written, .. }, Kind::Enum { symbols: read, .. }) => {
                written == read && self.named_alike(w, r)
            }
            (Kind::Record(written), Kind::Record(read)) => {
                if !self.named_alike(w, r) {
                    return false;
                }
                if let Some(&known) = seen.get(&(w, r)) {
                    return known;
                }
                seen.insert((w, r), true);
                let same = written.len() == read.len()
                    && written.iter().zip(read).all(|(written, read)| {
                        written.name == read.name && self.equivalent_types(written.kind, read.kind, seen, nesting + 1)
                    });
                seen.insert((w, r), same);
                same
            }
            (written, read) => std::mem::discriminant(written) == std::mem::discriminant(read),
        }
    }
}
