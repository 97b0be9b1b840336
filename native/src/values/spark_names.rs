//! The names of Arrow types in messages, as in Spark's SQL.

use arrow_schema::{DataType, TimeUnit};

/// Returns the name that Spark's SQL has for an Arrow type.
pub fn of_column(kind: &DataType) -> String {
    match kind {
        DataType::Null => "void".into(),
        DataType::Boolean => "boolean".into(),
        DataType::Int8 => "tinyint".into(),
        DataType::Int16 => "smallint".into(),
        DataType::Int32 => "int".into(),
        DataType::Int64 => "bigint".into(),
        DataType::Float32 => "float".into(),
        DataType::Float64 => "double".into(),
        DataType::Utf8 | DataType::LargeUtf8 => "string".into(),
        DataType::Binary | DataType::LargeBinary => "binary".into(),
        DataType::Date32 => "date".into(),
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => "timestamp".into(),
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp_ntz".into(),
        DataType::Duration(TimeUnit::Microsecond) => "interval day to second".into(),
        DataType::Decimal128(precision, scale) => format!("decimal({precision},{scale})"),
        DataType::List(item) | DataType::LargeList(item) => format!("array<{}>", of_column(item.data_type())),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(parts) => {
                let parts: Vec<_> = parts.iter().map(|part| of_column(part.data_type())).collect();
                format!("map<{}>", parts.join(","))
            }
            other => other.to_string(),
        },
        DataType::Struct(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|field| format!("{}:{}", field.name(), of_column(field.data_type()))).collect();
            format!("struct<{}>", fields.join(","))
        }
        other => other.to_string(),
    }
}
