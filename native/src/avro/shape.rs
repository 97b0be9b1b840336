//! The column type of an Avro type, as Spark's `SchemaConverters.toSqlType`.

use std::collections::HashMap;
use std::sync::Arc;

use super::schema::{Id, Kind, Logical, Schema};
use crate::values::fault::Fault;
use crate::values::slot::{Entry, MAX_COLUMNS, MAX_NESTING, Part, Shape, Slot, check_recursion};

/// How a union without its null branch becomes a column.
pub enum Choice {
    /// It is the type of its only branch.
    One(Id),
    /// int and long are a long column, float and double a double column.
    Wide(Shape),
    /// A struct with a column for each branch.
    Members(Vec<Id>),
}

impl Slot {
    /// Returns the column type of a schema.
    ///
    /// `recursion` is Spark's `recursiveFieldMaxDepth`: how often a record may contain itself, from 1 on; the fields
    /// below are left out. With less, a recursive schema is refused.
    pub fn of_schema(schema: &Schema, recursion: i64) -> Result<Self, Fault> {
        check_recursion(recursion)?;
        let mut shapes = Shapes { schema, recursion, columns: 0, nesting: 0, open: HashMap::new() };
        let slot = shapes.slot(schema.root)?;
        slot.ok_or_else(|| Fault::new("the schema has no fields down to the recursion depth"))
    }

    /// Keeps these fields of a record, or members of a union, only, in this order.
    pub fn project(&mut self, fields: &[String]) -> Result<(), Fault> {
        let Shape::Struct(parts) = &mut self.shape else {
            return Err(Fault::new("fields can be chosen of a record only"));
        };
        let mut chosen: Vec<Part> = vec![];
        for name in fields {
            let part = parts.iter().find(|part| *part.name == **name);
            let part = part.ok_or_else(|| Fault::new(format!("the schema has no field {name}")))?;
            if chosen.iter().any(|other| other.source == part.source) {
                return Err(Fault::new(format!("the field {name} is chosen twice")));
            }
            chosen.push(part.clone());
        }
        *parts = chosen;
        Ok(())
    }
}

/// Returns how the union of `branches` becomes a column.
pub fn choice(schema: &Schema, branches: &[Id]) -> Choice {
    let others: Vec<Id> = branches.iter().copied().filter(|&id| !matches!(schema.kind(id), Kind::Null)).collect();
    let kinds: Vec<&Kind> = others.iter().map(|&id| schema.kind(id)).collect();
    match (others.as_slice(), kinds.as_slice()) {
        (&[id], _) => Choice::One(id),
        (_, [Kind::Int, Kind::Long] | [Kind::Long, Kind::Int]) => Choice::Wide(Shape::Long),
        (_, [Kind::Float, Kind::Double] | [Kind::Double, Kind::Float]) => Choice::Wide(Shape::Double),
        _ => Choice::Members(others),
    }
}

struct Shapes<'a> {
    schema: &'a Schema,
    recursion: i64,
    columns: usize,
    nesting: usize,
    /// How often each record contains the place.
    open: HashMap<Id, i64>,
}

impl Shapes<'_> {
    /// Returns the column of a type; None if it is left out because of the recursion depth.
    fn slot(&mut self, id: Id) -> Result<Option<Slot>, Fault> {
        self.columns += 1;
        self.nesting += 1;
        if self.columns > MAX_COLUMNS {
            return Err(Fault::new(format!("the schema has more than {MAX_COLUMNS} columns")));
        }
        if self.nesting > MAX_NESTING {
            return Err(Fault::new(format!("the types of the schema are nested more than {MAX_NESTING} deep")));
        }
        let nullable = match self.schema.kind(id) {
            Kind::Null => true,
            Kind::Union(branches) => branches.iter().any(|&id| matches!(self.schema.kind(id), Kind::Null)),
            _ => false,
        };
        let slot = match (self.schema.kind(id), self.schema.get(id).logical) {
            (Kind::Union(branches), _) => match choice(self.schema, branches) {
                Choice::One(id) => self.slot(id)?.map(|slot| slot.shape),
                Choice::Wide(shape) => Some(shape),
                Choice::Members(branches) => {
                    let branches = branches.iter().enumerate();
                    let named = branches.map(|(i, &id)| (format!("member{i}").into(), id, true));
                    Some(self.parts(named)?)
                }
            },
            (Kind::Record(_), _) => return self.record(id),
            (&Kind::Array(item), _) => self.item("[]", item)?.map(Shape::List),
            (&Kind::Map(value), _) => {
                // The values of a map are in the structs of its entries.
                self.nesting += 1;
                let value = self.item("{}", value)?;
                self.nesting -= 1;
                value.map(|value| Shape::Map(Entry::of_text(*value)))
            }
            (kind, logical) => Some(scalar(kind, logical)?),
        };
        self.nesting -= 1;
        Ok(slot.map(|shape| Slot { shape, nullable }))
    }

    fn item(&mut self, name: &str, id: Id) -> Result<Option<Box<Slot>>, Fault> {
        Ok(self.slot(id).map_err(|fault| fault.within(&name.into()))?.map(Box::new))
    }

    fn record(&mut self, id: Id) -> Result<Option<Slot>, Fault> {
        let Kind::Record(fields) = self.schema.kind(id) else { return Ok(None) };
        let open = self.open.get(&id).copied().unwrap_or(0);
        if open > 0 && self.recursion <= 0 {
            let name = self.schema.describe(id);
            let reason = format!("{name} contains itself; set a recursion depth, at which its fields are left out");
            return Err(Fault::new(reason));
        }
        self.nesting -= 1;
        if open > 0 && open >= self.recursion {
            return Ok(None);
        }
        self.open.insert(id, open + 1);
        self.nesting += 1;
        let shape = self.parts(fields.iter().map(|field| (field.name.clone(), field.kind, false)))?;
        self.nesting -= 1;
        self.open.insert(id, open);
        Ok(Some(Slot { shape, nullable: false }))
    }

    /// Returns the struct of these columns: name, type, whether it is null in some rows by another reason.
    fn parts(&mut self, columns: impl Iterator<Item = (Arc<str>, Id, bool)>) -> Result<Shape, Fault> {
        let mut parts = vec![];
        for (source, (name, id, optional)) in columns.enumerate() {
            if let Some(mut slot) = self.slot(id).map_err(|fault| fault.within(&name))? {
                slot.nullable |= optional;
                parts.push(Part { name, slot, source });
            }
        }
        Ok(Shape::Struct(parts))
    }
}

fn scalar(kind: &Kind, logical: Option<Logical>) -> Result<Shape, Fault> {
    Ok(match (kind, logical) {
        (_, Some(Logical::Date)) => Shape::Date,
        (_, Some(Logical::TimestampMillis)) => Shape::Timestamp { millis: true, utc: true },
        (_, Some(Logical::TimestampMicros)) => Shape::Timestamp { millis: false, utc: true },
        (_, Some(Logical::LocalTimestampMillis)) => Shape::Timestamp { millis: true, utc: false },
        (_, Some(Logical::LocalTimestampMicros)) => Shape::Timestamp { millis: false, utc: false },
        (_, Some(Logical::Decimal { precision, scale })) => Shape::Decimal { precision, scale },
        (_, Some(Logical::LargeDecimal { precision })) => {
            return Err(Fault::new(format!("a decimal of {precision} digits; a column has 38 at most")));
        }
        (Kind::Boolean, None) => Shape::Boolean,
        (Kind::Int, None) => Shape::Int,
        (Kind::Long, None) => Shape::Long,
        (Kind::Float, None) => Shape::Float,
        (Kind::Double, None) => Shape::Double,
        (Kind::Bytes | Kind::Fixed(_), None) => Shape::Binary,
        (Kind::String | Kind::Enum { .. }, None) => Shape::Text,
        // The others are not scalar.
        _ => Shape::Null,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str, recursion: i64) -> Result<String, String> {
        let schema = Schema::parse(text).map_err(|fault| fault.to_string())?;
        Slot::of_schema(&schema, recursion).map(|slot| slot.data_type().to_string()).map_err(|fault| fault.to_string())
    }

    #[test]
    fn unions_become_what_spark_makes_of_them() {
        assert_eq!(kind(r#"["int", "long"]"#, -1).unwrap(), "Int64");
        assert_eq!(kind(r#"["null", "double", "float"]"#, -1).unwrap(), "Float64");
        assert_eq!(kind(r#"["null", "string"]"#, -1).unwrap(), "Utf8");
        let members = kind(r#"["string", "null", "int"]"#, -1).unwrap();
        assert!(
            members.contains("member0") && members.contains("member1") && !members.contains("member2"),
            "{members}"
        );
    }

    #[test]
    fn a_record_that_contains_itself_needs_a_depth() {
        let list = r#"{"type": "record", "name": "R", "fields": [{"name": "v", "type": "int"}, {"name": "n", "type": ["null", "R"]}]}"#;
        assert!(kind(list, -1).unwrap_err().starts_with("field n: record R contains itself"));
        let depth = |recursion| kind(list, recursion).unwrap().matches("Int32").count();
        assert_eq!([depth(1), depth(2), depth(15)], [1, 2, 15]);
        assert!(kind(list, 16).is_err());
        let tree = r#"{"type": "record", "name": "R", "fields": [{"name": "l", "type": ["null", "R"]}, {"name": "r", "type": ["null", "R"]}]}"#;
        assert!(kind(tree, 15).unwrap_err().contains("columns"));
    }
}
