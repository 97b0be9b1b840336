//! Finds the columns of the rows to encode, by their names in an Arrow record batch.

use arrow_schema::DataType;

use super::arrow_import::Column;
use crate::arrays::{Binary, Headers, Int32};
use crate::encoder::Rows;
use crate::refusal::Refusal;

/// Returns the rows of a record batch or struct array: `value` and, if they exist, `key`, `partition` and `headers`.
pub fn rows(batch: Column<'_>, timestamp: i64) -> Result<Rows<'_>, Refusal> {
    let DataType::Struct(fields) = batch.kind else {
        return Err(Refusal::Malformed(format!("an Arrow record batch is wanted, not an array of {}", batch.kind)));
    };
    let (count, first, validity) = (batch.rows(), batch.first(), batch.validity());
    if !(first..first + count).all(|row| validity.is_set(row) == Ok(true)) {
        return Err(Refusal::Malformed("a row of the batch is null as a whole".to_owned()));
    }
    let [mut values, mut keys, mut chosen, mut headers] = [None; 4];
    for (i, field) in fields.iter().enumerate() {
        let name = field.name().as_str();
        let column = match name {
            "value" => &mut values,
            "key" => &mut keys,
            "partition" => &mut chosen,
            "headers" => &mut headers,
            _ => {
                let reason = format!("unknown column {name}; there are value, key, partition and headers");
                return Err(Refusal::Malformed(reason));
            }
        };
        if column.replace(batch.child(i, field.data_type())?).is_some() {
            return Err(Refusal::Malformed(format!("column {name} is there twice")));
        }
    }
    let values = values.ok_or_else(|| Refusal::Malformed("there is no column value".to_owned()))?;
    Ok(Rows {
        rows: count,
        values: binary("value", values, first)?,
        keys: keys.map(|column| binary("key", column, first)).transpose()?,
        chosen: chosen.map(|column| int32("partition", column, first)).transpose()?,
        headers: headers.map(|column| lists("headers", column, first)).transpose()?,
        timestamp,
    })
}

/// Returns a binary column. `before`: the offset, in rows, of the struct array that contains the column.
fn binary<'a>(name: &str, column: Column<'a>, before: usize) -> Result<Binary<'a>, Refusal> {
    match column.kind {
        // Strings have the same buffers, and Kafka stores bytes, so UTF-8 need not be checked.
        DataType::Binary | DataType::Utf8 => {
            Ok(Binary::new(column.validity(), before + column.first(), column.offsets(), column.data()))
        }
        kind => Err(wrong_type(name, "binary", kind)),
    }
}

fn int32<'a>(name: &str, column: Column<'a>, before: usize) -> Result<Int32<'a>, Refusal> {
    match column.kind {
        DataType::Int32 => Ok(Int32::new(column.validity(), before + column.first(), column.values(4))),
        kind => Err(wrong_type(name, "int32", kind)),
    }
}

fn lists<'a>(name: &str, column: Column<'a>, before: usize) -> Result<Headers<'a>, Refusal> {
    let wrong = || wrong_type(name, "list<struct<key: binary, value: binary>>", column.kind);
    let DataType::List(entry) = column.kind else { return Err(wrong()) };
    let DataType::Struct(fields) = entry.data_type() else { return Err(wrong()) };
    let entries = column.child(0, entry.data_type())?;
    // The validity of entries is not checked, because a null entry has a null key, which the encoder refuses.
    let part = |part: &str| {
        let (i, field) = fields.find(part).filter(|_| fields.len() == 2).ok_or_else(wrong)?;
        binary(&format!("{name}.{part}"), entries.child(i, field.data_type())?, entries.first())
    };
    let (keys, values) = (part("key")?, part("value")?);
    Ok(Headers::new(column.validity(), before + column.first(), column.offsets(), keys, values))
}

fn wrong_type(name: &str, wanted: &str, kind: &DataType) -> Refusal {
    Refusal::Malformed(format!("column {name} is {wanted}, not {kind}"))
}
