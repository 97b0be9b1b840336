//! The reason why a value cannot be decoded, with the path of its field.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// The names of the items of an array, and of the values of a map.
pub static ITEM: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("[]"));
pub static ENTRY: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("{}"));

/// A reason and its place, without any part of the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    reason: Cow<'static, str>,
    /// The path, from the innermost field outwards.
    path: Vec<Arc<str>>,
}

impl Fault {
    #[cold]
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner { reason: reason.into(), path: vec![] }))
    }

    /// Adds the name of a field that contains the place.
    #[cold]
    #[must_use]
    pub fn within(mut self, name: &Arc<str>) -> Self {
        self.0.path.push(name.clone());
        self
    }
}

impl From<&'static str> for Fault {
    fn from(reason: &'static str) -> Self {
        Self::new(reason)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.path.is_empty() {
            f.write_str("field ")?;
        }
        for (i, name) in self.0.path.iter().rev().enumerate() {
            // The items of an array are `[]`, the values of a map `{}`.
            if i > 0 && !name.starts_with(['[', '{']) {
                f.write_str(".")?;
            }
            f.write_str(name)?;
        }
        if !self.0.path.is_empty() {
            f.write_str(": ")?;
        }
        f.write_str(&self.0.reason)
    }
}

impl std::error::Error for Fault {}
