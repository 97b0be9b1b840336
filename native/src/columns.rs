//! The columns that a reader can request, with the Arrow types that Spark expects.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Key {
        text: bool,
    },
    Value {
        text: bool,
    },
    Topic,
    Partition,
    Offset,
    /// `lenient`: a timestamp that is too large for microseconds becomes [`TOO_LARGE`] instead of a fault.
    Timestamp {
        lenient: bool,
    },
    TimestampType,
    Headers,
}

/// Stands for a timestamp that is too large for microseconds. No timestamp in milliseconds has this value.
pub const TOO_LARGE: i64 = i64::MIN;

impl Column {
    /// Parses a column's name and, for `key` and `value`, its type: `binary` or `string`; or `lenient` for `timestamp`.
    pub fn parse(name: &str, kind: Option<&str>) -> Result<Self, String> {
        let text = |default| match kind.unwrap_or(default) {
            "binary" => Ok(false),
            "string" => Ok(true),
            other => Err(format!("column {name} is binary or string, not {other}")),
        };
        let column = match name {
            "timestamp" if kind == Some("lenient") => return Ok(Self::Timestamp { lenient: true }),
            "key" => Self::Key { text: text("binary")? },
            "value" => Self::Value { text: text("binary")? },
            "topic" => Self::Topic,
            "partition" => Self::Partition,
            "offset" => Self::Offset,
            "timestamp" => Self::Timestamp { lenient: false },
            "timestampType" => Self::TimestampType,
            "headers" => Self::Headers,
            _ => {
                return Err(format!(
                    "unknown column {name}; there are key, value, topic, partition, offset, timestamp, timestampType and headers"
                ));
            }
        };
        if let (false, Some(kind)) = (matches!(column, Self::Key { .. } | Self::Value { .. }), kind) {
            return Err(format!("column {name} has one type only, leave out the type {kind}"));
        }
        Ok(column)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Key { .. } => "key",
            Self::Value { .. } => "value",
            Self::Topic => "topic",
            Self::Partition => "partition",
            Self::Offset => "offset",
            Self::Timestamp { .. } => "timestamp",
            Self::TimestampType => "timestampType",
            Self::Headers => "headers",
        }
    }

    pub fn data_type(self) -> DataType {
        match self {
            Self::Key { text } | Self::Value { text } => {
                if text {
                    DataType::Utf8
                } else {
                    DataType::Binary
                }
            }
            Self::Topic => DataType::Utf8,
            Self::Partition | Self::TimestampType => DataType::Int32,
            Self::Offset => DataType::Int64,
            Self::Timestamp { .. } => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Headers => DataType::List(header_field()),
        }
    }

    /// Returns the bytes of one row in this column, without the variable-length data.
    pub fn fixed_width(self) -> usize {
        match self {
            Self::Key { .. } | Self::Value { .. } | Self::Topic | Self::Headers => 4,
            Self::Partition | Self::TimestampType => 4,
            Self::Offset | Self::Timestamp { .. } => 8,
        }
    }
}

/// Returns the field for an element of `headers`, with Spark's name and nullability, which Spark compares exactly.
pub fn header_field() -> Arc<Field> {
    Arc::new(Field::new("element", DataType::Struct(header_fields()), true))
}

pub fn header_fields() -> Fields {
    Fields::from(vec![Field::new("key", DataType::Utf8, true), Field::new("value", DataType::Binary, true)])
}

pub fn schema(columns: &[Column]) -> Schema {
    let fields: Vec<_> = columns.iter().map(|column| Field::new(column.name(), column.data_type(), true)).collect();
    Schema::new(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spark refuses a batch with another schema.
    #[test]
    fn columns_have_the_types_of_spark() {
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let header = [("key", DataType::Utf8), ("value", DataType::Binary)];
        let header = Fields::from(header.map(|(name, kind)| Field::new(name, kind, true)).to_vec());
        let headers = DataType::new_list(DataType::Struct(header), true);
        let DataType::List(element) = &headers else { panic!("a list") };
        let headers = DataType::List(Arc::new(element.as_ref().clone().with_name("element")));
        for (name, kind, data_type, width) in [
            ("key", Some("binary"), DataType::Binary, 4),
            ("key", Some("string"), DataType::Utf8, 4),
            ("value", None, DataType::Binary, 4),
            ("topic", None, DataType::Utf8, 4),
            ("partition", None, DataType::Int32, 4),
            ("offset", None, DataType::Int64, 8),
            ("timestamp", None, time, 8),
            ("timestampType", None, DataType::Int32, 4),
            ("headers", None, headers, 4),
        ] {
            let column = Column::parse(name, kind).unwrap();
            assert_eq!(schema(&[column]), Schema::new(vec![Field::new(name, data_type, true)]), "{name}");
            assert_eq!(column.fixed_width(), width, "{name}");
        }
    }
}
