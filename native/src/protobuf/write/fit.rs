//! Checks that an Arrow type fits a message, for `writer_schema.py`, and plans how its values become fields.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};
use protox::prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use crate::protobuf::plan::{Instant, instant_of};
use crate::protobuf::wire::{Wire, put_tag};
use crate::values::encode::field_of;
use crate::values::fault::{ENTRY, Fault, ITEM};
use crate::values::spark_names;

/// A struct that becomes a message.
#[derive(Debug)]
pub struct Message {
    /// The steps, sorted by the numbers of their fields.
    pub steps: Vec<Step>,
    /// For each oneof that has several members in the struct, the steps of these members.
    pub oneofs: Vec<Vec<usize>>,
}

/// A part of the struct, which becomes a field.
#[derive(Debug)]
pub struct Step {
    pub name: Arc<str>,
    pub part: usize,
    pub tag: Vec<u8>,
    pub how: How,
}

#[derive(Debug)]
pub enum How {
    /// `implicit`: a default value is not written, because the field has no presence.
    One {
        value: Value,
        implicit: bool,
        required: bool,
    },
    Many(Value),
    /// All items of a repeated field in one piece (packed).
    Packed(Value),
    Map {
        key_tag: Vec<u8>,
        key: Value,
        value_tag: Vec<u8>,
        value: Value,
    },
    /// The column has nulls only.
    Nothing,
}

#[derive(Debug)]
pub enum Value {
    Varint,
    Zigzag,
    Fixed32,
    Fixed64,
    /// An unsigned number of 32 bits; `fixed`: written in 4 bytes.
    Unsigned {
        fixed: bool,
    },
    Boolean,
    Float,
    Double,
    /// A float that is written as a double.
    FloatAsDouble,
    Text,
    Bytes,
    /// The number of each symbol.
    Enum(HashMap<Box<[u8]>, i32>),
    /// Microseconds, written to the fields with these numbers; `rounds_down`: nanoseconds are never negative.
    Instant {
        seconds: u32,
        nanos: u32,
        rounds_down: bool,
    },
    /// The bytes of a present message without fields.
    There(Vec<u8>),
    Message(Message),
    /// The message of the group, and the tag at its end.
    Group(Message, Vec<u8>),
}

/// Returns the plan by which a column of type `kind` becomes messages.
///
/// Fails with the path, the column's type and the field's type at the place that does not fit.
pub fn fit(kind: &DataType, message: &MessageDescriptor) -> Result<Message, Fault> {
    let DataType::Struct(parts) = kind else {
        return Err(unfit(kind, &format!("message {}", message.full_name())));
    };
    let fields: Vec<FieldDescriptor> = message.fields().collect();
    let mut sources: Vec<Option<usize>> = vec![None; fields.len()];
    for (i, part) in parts.iter().enumerate() {
        let name: Arc<str> = part.name().as_str().into();
        let field = field_of(part.name(), fields.iter().map(FieldDescriptor::name))
            .map_err(|reason| Fault::new(format!("message {} has {reason}", message.full_name())).within(&name))?;
        if let Some(source) = sources.get_mut(field)
            && source.replace(i).is_some()
        {
            return Err(Fault::new("two fields of the column have this name").within(&name));
        }
    }
    let mut found: Vec<(FieldDescriptor, Step)> = vec![];
    for (field, source) in fields.into_iter().zip(sources) {
        match source.and_then(|i| Some((i, parts.get(i)?))) {
            Some((i, part)) => {
                let name: Arc<str> = part.name().as_str().into();
                let (tag, how) = how(part.data_type(), &field).map_err(|fault| fault.within(&name))?;
                found.push((field, Step { name, part: i, tag, how }));
            }
            None if field.is_required() => {
                let reason = "the column lacks this field, which the message requires";
                return Err(Fault::new(reason).within(&field.name().into()));
            }
            None => {}
        }
    }
    found.sort_by_key(|(field, _)| field.number());
    let mut oneofs: HashMap<String, Vec<usize>> = HashMap::new();
    for (i, (field, _)) in found.iter().enumerate() {
        if let Some(oneof) = field.containing_oneof() {
            oneofs.entry(oneof.full_name().to_owned()).or_default().push(i);
        }
    }
    let steps = found.into_iter().map(|(_, step)| step).collect();
    Ok(Message { steps, oneofs: oneofs.into_values().filter(|members| members.len() > 1).collect() })
}

/// Returns the tag and the plan of a field.
fn how(kind: &DataType, field: &FieldDescriptor) -> Result<(Vec<u8>, How), Fault> {
    if matches!(kind, DataType::Null) && !field.is_required() {
        return Ok((vec![], How::Nothing));
    }
    let refused = || unfit(kind, &name_of(field));
    if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
        let DataType::Map(entries, _) = kind else { return Err(refused()) };
        let DataType::Struct(parts) = entries.data_type() else { return Err(refused()) };
        let [key, value] = parts.as_ref() else { return Err(refused()) };
        let (key_field, value_field) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        let (key_tag, key) = one(key.data_type(), &key_field).map_err(|fault| fault.within(&ENTRY))?;
        let (value_tag, value) = one(value.data_type(), &value_field).map_err(|fault| fault.within(&ENTRY))?;
        return Ok((tag(field, Wire::Prefixed), How::Map { key_tag, key, value_tag, value }));
    }
    if field.is_list() {
        let (DataType::List(item) | DataType::LargeList(item)) = kind else { return Err(refused()) };
        let (item_tag, value) = one(item.data_type(), field).map_err(|fault| fault.within(&ITEM))?;
        return Ok(if field.is_packed() {
            (tag(field, Wire::Prefixed), How::Packed(value))
        } else {
            (item_tag, How::Many(value))
        });
    }
    let (tag, value) = one(kind, field)?;
    let (implicit, required) = (!field.supports_presence(), field.is_required());
    Ok((tag, How::One { value, implicit, required }))
}

/// Returns the tag and the form of one value of a field.
fn one(kind: &DataType, field: &FieldDescriptor) -> Result<(Vec<u8>, Value), Fault> {
    use DataType::{Binary, Boolean, Date32, Duration, Float32, Float64, Int8, Int16, Int32, Int64};
    use DataType::{LargeBinary, LargeUtf8, Timestamp, Utf8};
    let narrow = matches!(kind, Int8 | Int16 | Int32 | Date32);
    let wide = matches!(kind, Int8 | Int16 | Int32 | Int64);
    let (wire, value) = match (field.kind(), kind) {
        (Kind::Int32, _) if narrow => (Wire::Varint, Value::Varint),
        (Kind::Int64 | Kind::Uint64, _) if wide => (Wire::Varint, Value::Varint),
        (Kind::Sint32, _) if narrow => (Wire::Varint, Value::Zigzag),
        (Kind::Sint64, _) if wide => (Wire::Varint, Value::Zigzag),
        (Kind::Uint32, _) if wide => (Wire::Varint, Value::Unsigned { fixed: false }),
        (Kind::Fixed32, _) if wide => (Wire::Fixed32, Value::Unsigned { fixed: true }),
        (Kind::Sfixed32, _) if narrow => (Wire::Fixed32, Value::Fixed32),
        (Kind::Fixed64 | Kind::Sfixed64, _) if wide => (Wire::Fixed64, Value::Fixed64),
        (Kind::Bool, Boolean) => (Wire::Varint, Value::Boolean),
        (Kind::Float, Float32) => (Wire::Fixed32, Value::Float),
        (Kind::Double, Float64) => (Wire::Fixed64, Value::Double),
        (Kind::Double, Float32) => (Wire::Fixed64, Value::FloatAsDouble),
        (Kind::String, Utf8 | LargeUtf8) => (Wire::Prefixed, Value::Text),
        (Kind::Bytes, Binary | LargeBinary) => (Wire::Prefixed, Value::Bytes),
        (Kind::Enum(symbols), Utf8 | LargeUtf8) => {
            let symbols = symbols.values().map(|one| (one.name().as_bytes().into(), one.number())).collect();
            (Wire::Varint, Value::Enum(symbols))
        }
        (Kind::Message(message), Timestamp(TimeUnit::Microsecond, Some(_)) | Duration(TimeUnit::Microsecond))
            if !field.is_group() =>
        {
            let rounds_down = matches!(kind, Timestamp(..));
            match instant_of(&message) {
                Some(Instant { seconds, nanos, is_duration }) if rounds_down != is_duration => {
                    (Wire::Prefixed, Value::Instant { seconds, nanos, rounds_down })
                }
                _ => return Err(unfit(kind, &name_of(field))),
            }
        }
        (Kind::Message(message), Boolean) if message.fields().next().is_none() => match field.is_group() {
            true => (Wire::Group, Value::There(tag(field, Wire::GroupEnd))),
            false => (Wire::Prefixed, Value::There(vec![0])),
        },
        (Kind::Message(message), DataType::Struct(_)) => {
            let message = fit(kind, &message)?;
            if field.is_group() {
                (Wire::Group, Value::Group(message, tag(field, Wire::GroupEnd)))
            } else {
                (Wire::Prefixed, Value::Message(message))
            }
        }
        _ => return Err(unfit(kind, &name_of(field))),
    };
    Ok((tag(field, wire), value))
}

fn tag(field: &FieldDescriptor, wire: Wire) -> Vec<u8> {
    let mut bytes = vec![];
    put_tag(&mut bytes, field.number(), wire);
    bytes
}

fn unfit(kind: &DataType, wanted: &str) -> Fault {
    let column = spark_names::of_column(kind);
    Fault::new(format!("the column has {column}, which cannot be written as {wanted} of the schema"))
}

fn name_of(field: &FieldDescriptor) -> String {
    let name = match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let [key, value] = [entry.map_entry_key_field(), entry.map_entry_value_field()].map(|one| name_of(&one));
            return format!("map<{key}, {value}>");
        }
        Kind::Message(message) => format!("message {}", message.full_name()),
        Kind::Enum(symbols) => format!("enum {}", symbols.full_name()),
        // As in a `.proto` file.
        scalar => format!("{scalar:?}").to_lowercase(),
    };
    if field.is_list() { format!("repeated {name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::descriptors::{Descriptors, Source};
    use arrow_schema::Field as Column;

    fn told(kind: &DataType, schema: &str) -> String {
        let text = format!("syntax = \"proto3\"; {schema}");
        let descriptors = Descriptors::new(Source::Text(&text, HashMap::new())).unwrap();
        let message = descriptors.message(None).unwrap();
        fit(kind, &message).map_or_else(|fault| fault.to_string(), |_| "fits".into())
    }

    fn columns(parts: &[(&str, DataType)]) -> DataType {
        DataType::Struct(parts.iter().map(|(name, kind)| Column::new(*name, kind.clone(), true)).collect())
    }

    #[test]
    fn an_error_names_the_path_and_both_types() {
        let schema =
            "message M { O o = 1; repeated int32 all = 2; } message O { double sum = 1; map<string, E> by = 2; }
            enum E { A = 0; }";
        let of = |name, kind| columns(&[("o", columns(&[(name, kind)]))]);
        assert_eq!(told(&of("SUM", DataType::Float32), schema), "fits");
        assert_eq!(
            told(&of("sum", DataType::Utf8), schema),
            "field o.sum: the column has string, which cannot be written as double of the schema"
        );
        assert_eq!(told(&of("price", DataType::Utf8), schema), "field o.price: message O has no field of this name");
        assert_eq!(
            told(&of("by", DataType::Utf8), schema),
            "field o.by: the column has string, which cannot be written as map<string, enum E> of the schema"
        );
        assert_eq!(
            told(&columns(&[("all", DataType::Int32)]), schema),
            "field all: the column has int, which cannot be written as repeated int32 of the schema"
        );
        assert_eq!(
            told(&DataType::Utf8, schema),
            "the column has string, which cannot be written as message M of the schema"
        );
    }

    #[test]
    fn a_local_time_is_no_instant() {
        let schema = "import \"google/protobuf/timestamp.proto\"; message M { google.protobuf.Timestamp at = 1; }";
        let at =
            |zone: Option<&str>| columns(&[("at", DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into)))]);
        assert_eq!(told(&at(Some("UTC")), schema), "fits");
        assert!(told(&at(None), schema).contains("the column has timestamp_ntz"));
        assert!(told(&columns(&[("at", DataType::Duration(TimeUnit::Microsecond))]), schema).contains("interval"));
        assert_eq!(told(&columns(&[("at", columns(&[("seconds", DataType::Int64)]))]), schema), "fits");
    }
}
