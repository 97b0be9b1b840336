//! Renames types and fields of a writer schema by the reader schema's aliases, like Java's `Schema.applyAliases`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::schema::{Kind, Schema};
use crate::values::fault::Fault;

/// Renames the types and fields of `writer` that the aliases of `reader` name.
pub fn apply(writer: &mut Schema, reader: &Schema) -> Result<(), Fault> {
    let mut types: HashMap<Arc<str>, Arc<str>> = HashMap::new();
    let mut fields: HashMap<Arc<str>, HashMap<Arc<str>, Arc<str>>> = HashMap::new();
    for kind in reader.types() {
        let Some(name) = &kind.name else { continue };
        for alias in &kind.aliases {
            types.insert(alias.clone(), name.clone());
        }
        let Kind::Record(list) = &kind.kind else { continue };
        let mut renamed = HashMap::new();
        for field in list {
            renamed.extend(field.aliases.iter().map(|alias| (alias.clone(), field.name.clone())));
        }
        if !renamed.is_empty() {
            for alias in &kind.aliases {
                fields.insert(alias.clone(), renamed.clone());
            }
            fields.insert(name.clone(), renamed);
        }
    }
    if types.is_empty() && fields.is_empty() {
        return Ok(());
    }
    for kind in writer.types_mut() {
        let Some(name) = &mut kind.name else { continue };
        if let Some(renamed) = types.get(name) {
            *name = renamed.clone();
        }
        let (Kind::Record(list), Some(renamed)) = (&mut kind.kind, fields.get(name)) else { continue };
        let mut names = HashSet::new();
        for field in list {
            if let Some(renamed) = renamed.get(&field.name) {
                field.name = renamed.clone();
            }
            if !names.insert(field.name.clone()) {
                let reason =
                    format!("by the aliases of the reader schema, record {name} has the field {} twice", field.name);
                return Err(Fault::new(reason));
            }
        }
    }
    Ok(())
}
