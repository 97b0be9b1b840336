//! Plans the columns for the fields of JSON objects, by the fields' names, up to a limit of nesting.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, TimeUnit};

use crate::values::fault::{ENTRY, Fault, ITEM};
use crate::values::slot::{Entry, MAX_NESTING, Part, Shape, Slot};

/// If an object has at most this many fields, names are compared one by one; otherwise a map is used.
const FEW: usize = 16;

#[derive(Debug)]
pub enum Node {
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Decimal { scale: i8 },
    Date,
    Timestamp { utc: bool },
    Text,
    Binary,
    List(Box<Items>),
    Map(Box<Items>),
    Struct(Fields),
}

#[derive(Debug)]
pub struct Items {
    pub node: Node,
    /// The memory of an item in bits, without its texts and inner items.
    pub bits: u64,
}

#[derive(Debug)]
pub struct Named {
    pub name: Arc<str>,
    /// The name in quotation marks, as in JSON; None: the name needs escapes.
    key: Option<Box<[u8]>>,
    pub node: Node,
    pub bits: u64,
}

#[derive(Debug)]
pub struct Fields {
    pub fields: Vec<Named>,
    /// The fields' positions by name; empty if there are few names.
    by_name: HashMap<Arc<str>, usize>,
}

impl Fields {
    /// Returns the length of a field's key with its quotation marks, if the text begins with the key.
    #[inline(always)]
    pub fn key_at(&self, field: usize, text: &[u8]) -> Option<usize> {
        let key = self.fields.get(field)?.key.as_deref()?;
        text.starts_with(key).then_some(key.len())
    }

    /// Returns the position of a field.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        if self.by_name.is_empty() {
            return self.fields.iter().position(|field| field.name.as_bytes() == name);
        }
        self.by_name.get(std::str::from_utf8(name).ok()?).copied()
    }
}

/// Returns the column and the plan of a type. Every part of the column may be null, as in JSON.
pub fn of_type(kind: &DataType) -> Result<(Slot, Node), Fault> {
    nested(kind, 0)
}

fn nested(kind: &DataType, depth: usize) -> Result<(Slot, Node), Fault> {
    if depth > MAX_NESTING {
        return Err(Fault::new(format!("the types are nested more than {MAX_NESTING} deep")));
    }
    let (shape, node) = match kind {
        DataType::Boolean => (Shape::Boolean, Node::Boolean),
        DataType::Int32 => (Shape::Int, Node::Int),
        DataType::Int64 => (Shape::Long, Node::Long),
        DataType::Float32 => (Shape::Float, Node::Float),
        DataType::Float64 => (Shape::Double, Node::Double),
        DataType::Date32 => (Shape::Date, Node::Date),
        DataType::Utf8 => (Shape::Text, Node::Text),
        DataType::Binary => (Shape::Binary, Node::Binary),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let utc = zone.is_some();
            (Shape::Timestamp { utc }, Node::Timestamp { utc })
        }
        &DataType::Decimal128(precision, scale) => (Shape::Decimal { precision, scale }, Node::Decimal { scale }),
        DataType::List(item) => {
            let (slot, items) = items(item, depth).map_err(|fault| fault.within(&ITEM))?;
            (Shape::List(slot), Node::List(items))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(both) => match both.as_ref() {
                [key, value] if *key.data_type() == DataType::Utf8 => {
                    // The values of a map are in the structs of its entries.
                    let (slot, items) = items(value, depth + 1).map_err(|fault| fault.within(&ENTRY))?;
                    (Shape::Map(Entry::of_text(*slot)), Node::Map(items))
                }
                _ => return Err("the keys of a map must be strings".into()),
            },
            _ => return Err("a map without entries".into()),
        },
        DataType::Struct(children) => {
            let (mut parts, mut fields) = (vec![], vec![]);
            for (source, child) in children.iter().enumerate() {
                let name: Arc<str> = child.name().as_str().into();
                let (slot, node) = nested(child.data_type(), depth + 1).map_err(|fault| fault.within(&name))?;
                let bits = slot.bits();
                parts.push(Part { name: name.clone(), slot, source });
                let is_plain = !name.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\');
                let key = is_plain.then(|| format!("\"{name}\"").into_bytes().into());
                fields.push(Named { name, key, node, bits });
            }
            let by_name: HashMap<_, _> = fields.iter().enumerate().map(|(i, field)| (field.name.clone(), i)).collect();
            if by_name.len() < fields.len() {
                return Err("two fields have the same name".into());
            }
            let by_name = if fields.len() > FEW { by_name } else { HashMap::new() };
            (Shape::Struct(parts), Node::Struct(Fields { fields, by_name }))
        }
        other => return Err(Fault::new(format!("{other} cannot be read from JSON"))),
    };
    Ok((Slot { shape, nullable: true }, node))
}

fn items(item: &Field, depth: usize) -> Result<(Box<Slot>, Box<Items>), Fault> {
    let (slot, node) = nested(item.data_type(), depth + 1)?;
    let bits = slot.bits_of_item();
    Ok((Box::new(slot), Box::new(Items { node, bits })))
}
