//! The column type of an Avro type, as Spark's `SchemaConverters.toSqlType`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::DataType;

use super::schema::{Id, Kind, Logical, Schema, Unit};
use crate::values::fault::Fault;
use crate::values::slot::{self, Entry, MAX_COLUMNS, MAX_NESTING, Part, Shape, Slot, check_recursion};

/// How a union without its null branch becomes a column.
pub enum Choice {
    /// The union has one branch, of this type.
    One(Id),
    /// A long column for int and long, or a double column for float and double.
    Wide(Shape),
    /// A struct with a column for each branch.
    Members(Vec<Id>),
}

impl Slot {
    /// Returns the column type of a schema; its structs have the fields of `wanted`'s structs, in that order, or all
    /// fields.
    ///
    /// `recursion` is Spark's `recursiveFieldMaxDepth`: how many levels of a recursive record become columns,
    /// including the outermost. If `recursion` is below 1, a record within itself becomes a text of JSON.
    pub fn of_schema(schema: &Schema, wanted: Option<&DataType>, recursion: i64) -> Result<Self, Fault> {
        check_recursion(recursion)?;
        let mut shapes = Shapes { schema, recursion, columns: 0, nesting: 0, open: HashMap::new() };
        let slot = shapes.slot(schema.root, wanted)?;
        slot.ok_or_else(|| Fault::new("the schema has no fields down to the recursion depth"))
    }
}

/// The most digits of a decimal in Spark and in Arrow's decimal128. An Avro decimal may have more digits.
pub const DECIMAL_DIGITS: u32 = 38;

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
    /// How deep each record type is nested in itself at the current position.
    open: HashMap<Id, i64>,
}

impl Shapes<'_> {
    /// Returns the column of a type; None if it is left out because of the recursion depth.
    fn slot(&mut self, id: Id, wanted: Option<&DataType>) -> Result<Option<Slot>, Fault> {
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
        let slot = match (self.schema.kind(id), &self.schema.get(id).logical) {
            (Kind::Union(branches), _) => match choice(self.schema, branches) {
                Choice::One(id) => {
                    // A union of one branch has the branch's column.
                    (self.columns, self.nesting) = (self.columns - 1, self.nesting - 1);
                    let slot = self.slot(id, wanted)?;
                    self.nesting += 1;
                    slot.map(|slot| slot.shape)
                }
                Choice::Wide(shape) => Some(shape),
                Choice::Members(branches) => {
                    let branches = branches.iter().enumerate();
                    let named = branches.map(|(i, &id)| (format!("member{i}").into(), id, true));
                    Some(self.parts(named, wanted)?)
                }
            },
            (Kind::Record(_), _) => return self.record(id, wanted),
            (&Kind::Array(item), _) => self.item("[]", item, slot::item_of(wanted))?.map(Shape::List),
            (&Kind::Map(value), _) => {
                // The values of a map are in the structs of its entries.
                self.nesting += 1;
                let value = self.item("{}", value, slot::value_of(wanted))?;
                self.nesting -= 1;
                value.map(|value| Shape::Map(Entry::of_text(*value)))
            }
            (kind, logical) => Some(scalar(kind, logical.as_ref())),
        };
        self.nesting -= 1;
        Ok(slot.map(|shape| Slot { shape, nullable }))
    }

    fn item(&mut self, name: &str, id: Id, wanted: Option<&DataType>) -> Result<Option<Box<Slot>>, Fault> {
        Ok(self.slot(id, wanted).map_err(|fault| fault.within(&name.into()))?.map(Box::new))
    }

    fn record(&mut self, id: Id, wanted: Option<&DataType>) -> Result<Option<Slot>, Fault> {
        let Kind::Record(fields) = self.schema.kind(id) else { return Ok(None) };
        let open = self.open.get(&id).copied().unwrap_or(0);
        self.nesting -= 1;
        if open > 0 && self.recursion <= 0 {
            return Ok(Some(Slot { shape: Shape::Json, nullable: false }));
        }
        if open > 0 && open >= self.recursion {
            return Ok(None);
        }
        self.open.insert(id, open + 1);
        self.nesting += 1;
        let shape = self.parts(fields.iter().map(|field| (field.name.clone(), field.kind, false)), wanted)?;
        self.nesting -= 1;
        self.open.insert(id, open);
        Ok(Some(Slot { shape, nullable: false }))
    }

    /// Returns the struct of these columns (name, type, and whether the column may be null although its type may not).
    fn parts(
        &mut self,
        columns: impl Iterator<Item = (Arc<str>, Id, bool)>,
        wanted: Option<&DataType>,
    ) -> Result<Shape, Fault> {
        let mut parts = vec![];
        for (source, name, (id, optional), wanted) in slot::chosen(columns.map(|(a, b, c)| (a, (b, c))), wanted)? {
            if let Some(mut slot) = self.slot(id, wanted).map_err(|fault| fault.within(&name))? {
                slot.nullable |= optional;
                parts.push(Part { name, slot, source });
            }
        }
        Ok(Shape::Struct(parts))
    }
}

fn scalar(kind: &Kind, logical: Option<&Logical>) -> Shape {
    match (kind, logical) {
        (_, Some(Logical::Date)) => Shape::Date,
        (_, Some(Logical::Timestamp { unit: Unit::Millis | Unit::Micros, utc })) => Shape::Timestamp { utc: *utc },
        (_, Some(Logical::Decimal { precision, scale })) => {
            let digits = |count: &u32| (*count).min(DECIMAL_DIGITS) as u8;
            Shape::Decimal { precision: digits(precision), scale: digits(scale) as i8 }
        }
        (Kind::Boolean, _) => Shape::Boolean,
        (Kind::Int, _) => Shape::Int,
        (Kind::Long, _) => Shape::Long,
        (Kind::Float, _) => Shape::Float,
        (Kind::Double, _) => Shape::Double,
        (Kind::Bytes | Kind::Fixed(_), _) => Shape::Binary,
        (Kind::String | Kind::Enum { .. }, _) => Shape::Text,
        // The other kinds are not scalar.
        _ => Shape::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str, recursion: i64) -> Result<String, String> {
        let schema = Schema::parse(text).map_err(|fault| fault.to_string())?;
        Slot::of_schema(&schema, None, recursion)
            .map(|slot| slot.data_type().to_string())
            .map_err(|fault| fault.to_string())
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
    fn a_record_that_contains_itself_is_a_text_or_has_a_depth() {
        let list = r#"{"type": "record", "name": "R", "fields": [{"name": "v", "type": "int"}, {"name": "n", "type": ["null", "R"]}]}"#;
        assert!(kind(list, -1).unwrap().contains("\"n\": Utf8"), "{}", kind(list, -1).unwrap());
        let depth = |recursion| kind(list, recursion).unwrap().matches("Int32").count();
        assert_eq!([depth(1), depth(2), depth(15)], [1, 2, 15]);
        assert!(kind(list, 16).is_err());
        let tree = r#"{"type": "record", "name": "R", "fields": [{"name": "l", "type": ["null", "R"]}, {"name": "r", "type": ["null", "R"]}]}"#;
        assert!(kind(tree, 15).unwrap_err().contains("columns"));
    }
}
