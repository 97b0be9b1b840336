//! Checks that an Arrow type fits a schema, for `writer_schema.py`, and plans how values of the type are written.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Fields, TimeUnit};

use crate::avro::defaults;
use crate::avro::schema::{Field, Id, Kind, Logical, Schema, Unit};
use crate::avro::shape::{Choice, DECIMAL_DIGITS, choice};
use crate::values::encode::field_of;
use crate::values::fault::Fault;
use crate::values::spark_names;
use crate::varint::put;

/// The plan by which a column becomes values of an Avro type.
#[derive(Debug)]
pub struct Slot {
    /// The branch of a union in which values are written.
    pub branch: Option<i64>,
    pub null: Null,
    pub form: Form,
}

/// The bytes for a null.
#[derive(Debug)]
pub enum Null {
    /// The Avro type is null.
    Nothing,
    /// The null of a union.
    Branch(i64),
    Refused,
}

#[derive(Debug)]
pub enum Form {
    Null,
    Boolean,
    /// An int or a long; both have the same encoding.
    Whole,
    /// Microseconds, written as milliseconds.
    Millis,
    Float,
    Double,
    /// A float that is written as a double.
    FloatAsDouble,
    /// `size`: the size of a fixed type.
    Decimal {
        precision: u8,
        size: Option<usize>,
    },
    Bytes,
    Text,
    Fixed(usize),
    /// The number of each symbol.
    Enum(HashMap<Box<[u8]>, i64>),
    Array(Box<Slot>),
    Map(Box<Slot>),
    Record(Vec<Step>),
    /// A struct with a part for each branch of a union; one part is set. Each part has its branch and its plan.
    Members(Vec<(i64, Slot)>),
}

/// A field of a record.
#[derive(Debug)]
pub struct Step {
    pub name: Arc<str>,
    pub source: Source,
}

#[derive(Debug)]
pub enum Source {
    /// The number of a part of the struct.
    Part(usize, Slot),
    /// The bytes that are written if the struct does not have the field.
    Bytes(Vec<u8>),
}

/// Returns the plan by which a column of type `kind` becomes values of a schema.
///
/// Fails with the path, the column's type and the schema's type at the place that does not fit.
pub fn fit(kind: &DataType, schema: &Schema) -> Result<Slot, Fault> {
    slot(kind, schema, schema.root)
}

fn slot(kind: &DataType, schema: &Schema, id: Id) -> Result<Slot, Fault> {
    let Kind::Union(branches) = schema.kind(id) else {
        let null = if matches!(schema.kind(id), Kind::Null) { Null::Nothing } else { Null::Refused };
        return Ok(Slot { branch: None, null, form: form(kind, schema, id)? });
    };
    let number = |wanted: &dyn Fn(Id) -> bool| branches.iter().position(|&one| wanted(one)).map(|i| i as i64);
    let null = number(&|one| matches!(schema.kind(one), Kind::Null));
    let null_is = null.map_or(Null::Refused, Null::Branch);
    if matches!(kind, DataType::Null) && null.is_some() {
        return Ok(Slot { branch: null, null: null_is, form: Form::Null });
    }
    let chosen = match choice(schema, branches) {
        Choice::One(one) => Some(one),
        // The wider branch can encode every value, and readers read the values of both branches as the wider type.
        Choice::Wide(_) => branches.iter().copied().find(|&one| matches!(schema.kind(one), Kind::Long | Kind::Double)),
        Choice::Members(members) => {
            let parts = members_of(kind, &members).ok_or_else(|| unfit(kind, schema, id))?;
            let mut slots = vec![];
            for (part, one) in parts {
                let branch = number(&|other| other == one).unwrap_or(0);
                slots.push((
                    branch,
                    slot(part.data_type(), schema, one).map_err(|f| f.within(&part.name().as_str().into()))?,
                ));
            }
            return Ok(Slot { branch: None, null: null_is, form: Form::Members(slots) });
        }
    };
    let chosen = chosen.ok_or_else(|| unfit(kind, schema, id))?;
    Ok(Slot { branch: number(&|one| one == chosen), null: null_is, form: form(kind, schema, chosen)? })
}

/// Returns the parts of a struct of `member0`, `member1`, …, each with its branch; None for another column.
fn members_of<'a>(kind: &'a DataType, members: &[Id]) -> Option<Vec<(&'a Arc<arrow_schema::Field>, Id)>> {
    let DataType::Struct(parts) = kind else { return None };
    (parts.len() == members.len()).then_some(())?;
    let named = parts.iter().zip(members).enumerate();
    named.map(|(i, (part, &id))| (*part.name() == format!("member{i}")).then_some((part, id))).collect()
}

fn unfit(kind: &DataType, schema: &Schema, id: Id) -> Fault {
    let (column, wanted) = (spark_names::of_column(kind), schema.describe(id));
    Fault::new(format!("the column has {column}, which cannot be written as {wanted} of the schema"))
}

fn form(kind: &DataType, schema: &Schema, id: Id) -> Result<Form, Fault> {
    let kept = schema.get(id);
    let plain = kept.logical.is_none();
    Ok(match (kind, &kept.kind, &kept.logical) {
        (DataType::Null, Kind::Null, _) => Form::Null,
        (DataType::Boolean, Kind::Boolean, _) => Form::Boolean,
        (DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Date32, Kind::Int, _)
        | (DataType::Int64, Kind::Long, _) => Form::Whole,
        (DataType::Int8 | DataType::Int16 | DataType::Int32, Kind::Long, _) if plain => Form::Whole,
        (DataType::Timestamp(TimeUnit::Microsecond, zone), Kind::Long, logical) => match (zone, logical) {
            (_, Some(Logical::Timestamp { unit: Unit::Micros, utc })) if zone.is_some() == *utc => Form::Whole,
            (_, Some(Logical::Timestamp { unit: Unit::Millis, utc })) if zone.is_some() == *utc => Form::Millis,
            // As in Spark, for schemas without logical types.
            (_, None) => Form::Millis,
            _ => return Err(unfit(kind, schema, id)),
        },
        (DataType::Float32, Kind::Float, _) => Form::Float,
        (DataType::Float32, Kind::Double, _) => Form::FloatAsDouble,
        (DataType::Float64, Kind::Double, _) => Form::Double,
        (DataType::Decimal128(_, scale), written, Some(Logical::Decimal { precision, scale: wanted }))
            if i64::from(*scale) == i64::from(*wanted) =>
        {
            let size = if let &Kind::Fixed(size) = written { Some(size) } else { None };
            Form::Decimal { precision: (*precision).min(DECIMAL_DIGITS) as u8, size }
        }
        (DataType::Binary | DataType::LargeBinary, Kind::Bytes, _) => Form::Bytes,
        (DataType::Binary | DataType::LargeBinary, Kind::Fixed(size), _) => Form::Fixed(*size),
        (DataType::Utf8 | DataType::LargeUtf8, Kind::String, _) => Form::Text,
        (DataType::Utf8 | DataType::LargeUtf8, Kind::Enum { symbols, .. }, _) => {
            Form::Enum(symbols.iter().zip(0..).map(|(symbol, i)| (symbol.as_bytes().into(), i)).collect())
        }
        (DataType::List(item) | DataType::LargeList(item), &Kind::Array(wanted), _) => {
            Form::Array(Box::new(slot(item.data_type(), schema, wanted).map_err(|fault| fault.within(&"[]".into()))?))
        }
        (DataType::Map(entries, _), &Kind::Map(wanted), _) => match entries.data_type() {
            DataType::Struct(parts) => match parts.as_ref() {
                [key, value] if matches!(key.data_type(), DataType::Utf8 | DataType::LargeUtf8) => {
                    let value = slot(value.data_type(), schema, wanted).map_err(|fault| fault.within(&"{}".into()))?;
                    Form::Map(Box::new(value))
                }
                _ => return Err(unfit(kind, schema, id)),
            },
            _ => return Err(unfit(kind, schema, id)),
        },
        (DataType::Struct(parts), Kind::Record(fields), _) => Form::Record(record(parts, fields, schema, id)?),
        _ => return Err(unfit(kind, schema, id)),
    })
}

fn record(parts: &Fields, fields: &[Field], schema: &Schema, id: Id) -> Result<Vec<Step>, Fault> {
    let mut sources: Vec<Option<usize>> = vec![None; fields.len()];
    for (i, part) in parts.iter().enumerate() {
        let name: Arc<str> = part.name().as_str().into();
        let field = field_of(part.name(), fields.iter().map(|field| &*field.name)).map_err(|reason| {
            Fault::new(format!("{} of the schema has {reason}", schema.describe(id))).within(&name)
        })?;
        if let Some(source) = sources.get_mut(field)
            && source.replace(i).is_some()
        {
            return Err(Fault::new("two fields of the column have this name").within(&name));
        }
    }
    let mut steps = vec![];
    for (field, source) in fields.iter().zip(sources) {
        let part = source.and_then(|i| Some((i, parts.get(i)?)));
        let source = match part {
            Some((i, part)) => slot(part.data_type(), schema, field.kind).map(|slot| Source::Part(i, slot)),
            None => missing(field, schema).map(Source::Bytes),
        };
        let name = part.map_or_else(|| field.name.clone(), |(_, part)| part.name().as_str().into());
        steps.push(Step { source: source.map_err(|fault| fault.within(&name))?, name });
    }
    Ok(steps)
}

/// Returns the bytes for a field that the column lacks: the field's default, or null if it has no default.
fn missing(field: &Field, schema: &Schema) -> Result<Vec<u8>, Fault> {
    if let Some(json) = &field.default {
        return defaults::encode(schema, field.kind, json);
    }
    let mut bytes = vec![];
    let null = match schema.kind(field.kind) {
        Kind::Null => return Ok(bytes),
        Kind::Union(branches) => branches.iter().position(|&one| matches!(schema.kind(one), Kind::Null)),
        _ => None,
    };
    match null {
        Some(branch) => put(&mut bytes, branch as i64),
        None => {
            let wanted = schema.describe(field.kind);
            return Err(Fault::new(format!(
                "the column lacks this field, which the schema requires: {wanted}, without a default"
            )));
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::Field as Column;

    fn told(kind: &DataType, schema: &str) -> String {
        fit(kind, &Schema::parse(schema).unwrap()).map_or_else(|fault| fault.to_string(), |_| "fits".into())
    }

    fn columns(parts: &[(&str, DataType)]) -> DataType {
        DataType::Struct(parts.iter().map(|(name, kind)| Column::new(*name, kind.clone(), true)).collect())
    }

    fn record_of(fields: &str) -> String {
        format!(r#"{{"type": "record", "name": "R", "fields": [{fields}]}}"#)
    }

    #[test]
    fn an_error_names_the_path_and_both_types() {
        let schema = record_of(
            r#"{"name": "order", "type": {"type": "record", "name": "O", "fields": [
                {"name": "amounts", "type": {"type": "array", "items": "double"}}]}}"#,
        );
        let list = |kind| DataType::List(Arc::new(Column::new("element", kind, true)));
        let of = |kind| columns(&[("order", columns(&[("amounts", list(kind))]))]);
        assert_eq!(told(&of(DataType::Float64), &schema), "fits");
        assert_eq!(
            told(&of(DataType::Utf8), &schema),
            "field order.amounts[]: the column has string, which cannot be written as double of the schema"
        );
    }

    #[test]
    fn fields_are_found_by_name_also_in_another_case() {
        let one = |name| columns(&[(name, DataType::Int32)]);
        let schema = record_of(r#"{"name": "id", "type": "int"}, {"name": "at", "type": ["null", "int"]}"#);
        assert_eq!(told(&one("id"), &schema), "fits");
        assert_eq!(told(&one("ID"), &schema), "fits");
        assert_eq!(told(&one("no"), &schema), "field no: record R of the schema has no field of this name");
        let schema = record_of(r#"{"name": "a", "type": "int"}, {"name": "A", "type": "int", "default": 7}"#);
        assert_eq!(told(&one("a"), &schema), "fits");
        let both = columns(&[("a", DataType::Int32), ("a", DataType::Int32)]);
        assert_eq!(told(&both, &schema), "field a: two fields of the column have this name");
        let schema = record_of(r#"{"name": "ab", "type": "int"}, {"name": "AB", "type": "int"}"#);
        assert!(told(&one("Ab"), &schema).contains("several fields"));
    }

    #[test]
    fn what_the_column_does_not_have_is_a_default_or_null() {
        let schema = Schema::parse(&record_of(
            r#"{"name": "a", "type": "int", "default": 5}, {"name": "b", "type": ["string", "null"]}"#,
        ))
        .unwrap();
        let Form::Record(steps) = fit(&columns(&[]), &schema).unwrap().form else { panic!() };
        let bytes: Vec<_> = steps
            .iter()
            .map(|step| match &step.source {
                Source::Bytes(bytes) => bytes.clone(),
                Source::Part(..) => panic!(),
            })
            .collect();
        assert_eq!(bytes, [vec![10], vec![2]]);
        assert_eq!(
            told(&columns(&[]), &record_of(r#"{"name": "a", "type": "int"}"#)),
            "field a: the column lacks this field, which the schema requires: int, without a default"
        );
    }

    #[test]
    fn logical_types_fit_as_in_spark() {
        let instant = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let local = DataType::Timestamp(TimeUnit::Microsecond, None);
        let long = |logical: &str| format!(r#"{{"type": "long", "logicalType": "{logical}"}}"#);
        assert_eq!(told(&instant, &long("timestamp-millis")), "fits");
        assert_eq!(told(&local, &long("local-timestamp-micros")), "fits");
        assert_eq!(told(&instant, r#""long""#), "fits");
        assert_eq!(
            told(&instant, &long("local-timestamp-micros")),
            "the column has timestamp, which cannot be written as long (local-timestamp-micros) of the schema"
        );
        // Values of an unknown logical type would be written in milliseconds.
        assert!(told(&instant, &long("timestamp-nanos")).contains("cannot be written"));
        let decimal = r#"{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}"#;
        assert_eq!(told(&DataType::Decimal128(18, 2), decimal), "fits");
        assert_eq!(
            told(&DataType::Decimal128(9, 3), decimal),
            "the column has decimal(9,3), which cannot be written as bytes (decimal(9,2)) of the schema"
        );
    }

    #[test]
    fn a_union_of_several_types_is_a_struct_of_members() {
        let union = r#"["null", "int", "string"]"#;
        let members = columns(&[("member0", DataType::Int32), ("member1", DataType::Utf8)]);
        assert_eq!(told(&members, union), "fits");
        assert_eq!(
            told(&DataType::Int32, union),
            "the column has int, which cannot be written as union of null, int, string of the schema"
        );
        assert_eq!(told(&DataType::Int64, r#"["int", "long"]"#), "fits");
    }
}
