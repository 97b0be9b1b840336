//! Plans the column of each field of a message, by its number, and the values of absent fields and enums.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_schema::DataType;

use protox::prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, Syntax, Value as Explicit};

use super::wire::{Wire, skip, tag, varint};
use crate::values::fault::{ENTRY, Fault};
use crate::values::slot::{self, Entry, MAX_COLUMNS, MAX_NESTING, Part, Shape, Slot, check_recursion};

/// A message whose fields become columns.
#[derive(Debug)]
pub struct Message {
    /// The fields that are columns, or that reset a column of the same oneof, sorted by number.
    pub fields: Vec<Field>,
    /// The value of each column if the message does not have its field.
    pub absent: Vec<Absent>,
    /// Whether the message has a [`Value::Json`], at any depth.
    pub has_json: bool,
    /// The columns of each oneof, with their bits.
    pub oneofs: Vec<Vec<(usize, u64)>>,
}

#[derive(Debug)]
pub struct Field {
    pub number: u32,
    pub name: Arc<str>,
    /// The column; None: not requested.
    pub part: Option<usize>,
    pub oneof: Option<usize>,
    pub how: How,
    /// The memory of an item in bits, without its texts and inner items.
    pub bits: u64,
}

#[derive(Debug)]
pub enum How {
    One(Value),
    Many(Value),
    /// A map. The message of an entry has the key as field 1 and the value as field 2.
    Map(Message),
}

#[derive(Debug)]
pub enum Value {
    Int32,
    Sint32,
    Uint32,
    /// Also `uint64`, whose largest values are negative in a column, as in Java.
    Int64,
    Sint64,
    Bool,
    Fixed32,
    Sfixed32,
    /// Also `sfixed64`.
    Fixed64,
    Float,
    Double,
    /// Also `bytes`.
    Text,
    Enum(Symbols),
    Instant(Instant),
    Message(Message),
    Group(Message),
    /// A message that becomes a text of JSON when all pieces of its record have been read.
    Json(MessageDescriptor),
}

/// Google's `Timestamp` or `Duration`: the numbers of their fields.
#[derive(Debug)]
pub struct Instant {
    pub seconds: u32,
    pub nanos: u32,
    pub is_duration: bool,
}

impl Instant {
    /// Returns the microseconds of a value; parts that the value lacks are taken from `before`.
    #[inline]
    pub fn micros(&self, before: i64, mut input: &[u8]) -> Result<i64, Fault> {
        // The parts of a duration have the same sign; nanoseconds of a time are never negative.
        let whole = if self.is_duration { before / 1_000_000 } else { before.div_euclid(1_000_000) };
        let (mut whole, mut rest) = (whole, ((before - whole * 1_000_000) * 1000) as i32);
        while !input.is_empty() {
            match tag(&mut input)? {
                (number, Wire::Varint) if number == self.seconds => whole = varint(&mut input)? as i64,
                (number, Wire::Varint) if number == self.nanos => rest = varint(&mut input)? as i32,
                (number, wire) => skip(number, wire, &mut input)?,
            }
        }
        let micros = whole.checked_mul(1_000_000).and_then(|micros| micros.checked_add(i64::from(rest) / 1000));
        micros.ok_or_else(|| "the seconds are too many for microseconds".into())
    }
}

#[derive(Debug)]
pub enum Absent {
    Null,
    List,
    Map,
    Value(Constant),
    Required(Arc<str>),
    /// A map's value, decoded from no bytes as the field at this position.
    Empty(usize),
}

#[derive(Clone, Debug)]
pub enum Constant {
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    Bool(bool),
    Bytes(Box<[u8]>),
}

#[derive(Debug)]
pub struct Symbols {
    /// Sorted by number.
    known: Vec<(i32, Arc<str>)>,
    /// Whether values without a symbol count as absent, as in proto2.
    pub closed: bool,
    /// The text that Java's runtime puts before the number of a value without a symbol.
    unknown: String,
}

impl Symbols {
    fn new(kind: &EnumDescriptor) -> Self {
        // The first symbol of a number counts, as in `symbol_of`.
        let declared = &kind.enum_descriptor_proto().value;
        let mut known: Vec<_> = declared.iter().map(|value| (value.number(), Arc::from(value.name()))).collect();
        known.sort_by_key(|(number, _)| *number);
        known.dedup_by_key(|(number, _)| *number);
        let closed = kind.parent_file().syntax() == Syntax::Proto2;
        Self { known, closed, unknown: format!("UNKNOWN_ENUM_VALUE_{}_", kind.name()) }
    }

    #[inline(always)]
    pub fn get(&self, number: i32) -> Option<&Arc<str>> {
        // Most enums count from 0.
        if let Some((known, name)) = usize::try_from(number).ok().and_then(|at| self.known.get(at))
            && *known == number
        {
            return Some(name);
        }
        let at = self.known.binary_search_by_key(&number, |(known, _)| *known).ok()?;
        self.known.get(at).map(|(_, name)| name)
    }

    #[cold]
    pub fn unknown(&self, number: i32) -> String {
        format!("{}{number}", self.unknown)
    }
}

impl How {
    fn has_json(&self) -> bool {
        match self {
            Self::One(Value::Json(_)) | Self::Many(Value::Json(_)) => true,
            Self::One(Value::Message(plan) | Value::Group(plan))
            | Self::Many(Value::Message(plan) | Value::Group(plan))
            | Self::Map(plan) => plan.has_json,
            _ => false,
        }
    }
}

impl Value {
    #[inline(always)]
    pub fn wire(&self) -> Wire {
        match self {
            Self::Int32 | Self::Sint32 | Self::Uint32 | Self::Int64 | Self::Sint64 | Self::Bool | Self::Enum(_) => {
                Wire::Varint
            }
            Self::Fixed32 | Self::Sfixed32 | Self::Float => Wire::Fixed32,
            Self::Fixed64 | Self::Double => Wire::Fixed64,
            Self::Text | Self::Instant(_) | Self::Message(_) | Self::Json(_) => Wire::Prefixed,
            Self::Group(_) => Wire::Group,
        }
    }

    /// Returns whether a repeated field may have its items in one piece (packed).
    pub fn is_packable(&self) -> bool {
        !matches!(self.wire(), Wire::Prefixed | Wire::Group)
    }
}

impl Message {
    /// Returns the columns and the plan of a message, with the fields of `wanted`, in that order, or all fields.
    ///
    /// `recursion`: how many levels of a recursive message become columns, including the outermost. If `recursion` is
    /// below 1, a message within itself becomes a text of JSON.
    pub fn of_type(
        kind: &MessageDescriptor,
        wanted: Option<&DataType>,
        recursion: i64,
    ) -> Result<(Vec<Part>, Self), Fault> {
        check_recursion(recursion)?;
        let mut planner = Planner { recursion, columns: 0, nesting: 0, open: HashMap::new() };
        planner.open.insert(kind.full_name().to_owned(), 1);
        let (parts, plan) = planner.message(kind, wanted)?;
        if parts.is_empty() {
            return Err(Fault::new(format!("message {} has no field that can be a column", kind.full_name())));
        }
        Ok((parts, plan))
    }

    /// Returns the field with a number; `next` is the likely position, and becomes the position after the field.
    #[inline(always)]
    pub fn find(&self, number: u32, next: &mut usize) -> Option<&Field> {
        if let Some(field) = self.fields.get(*next)
            && field.number == number
        {
            *next += 1;
            return Some(field);
        }
        // Try the previous field again, which may be repeated.
        if let Some(field) = next.checked_sub(1).and_then(|last| self.fields.get(last))
            && field.number == number
        {
            return Some(field);
        }
        let at = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        *next = at + 1;
        self.fields.get(at)
    }
}

struct Planner {
    recursion: i64,
    columns: usize,
    nesting: usize,
    /// How deep each message type is nested in itself at the current position.
    open: HashMap<String, i64>,
}

impl Planner {
    fn message(&mut self, kind: &MessageDescriptor, wanted: Option<&DataType>) -> Result<(Vec<Part>, Message), Fault> {
        let declared: Vec<FieldDescriptor> = kind
            .descriptor_proto()
            .field
            .iter()
            .filter_map(|field| u32::try_from(field.number()).ok().and_then(|number| kind.get_field(number)))
            .collect();
        let named = declared.iter().map(|field| (Arc::from(field.name()), field.clone()));
        let shown = slot::chosen(named, wanted).map_err(|fault| fault.within(&kind.full_name().into()))?;
        let (mut parts, mut fields, mut absent): (Vec<Part>, Vec<Field>, Vec<Absent>) = (vec![], vec![], vec![]);
        let mut oneofs: HashMap<String, usize> = HashMap::new();
        let mut columns_of_oneofs: Vec<Vec<(usize, u64)>> = vec![];
        for (_, name, field, wanted) in shown {
            let part = parts.len();
            let Some((slot, how)) = self.field(&field, wanted).map_err(|fault| fault.within(&name))? else { continue };
            let oneof = field.containing_oneof().map(|oneof| {
                *oneofs.entry(oneof.full_name().to_owned()).or_insert_with(|| {
                    columns_of_oneofs.push(vec![]);
                    columns_of_oneofs.len() - 1
                })
            });
            let bits = bits_of(&slot, &how);
            if let Some(columns) = oneof.and_then(|i| columns_of_oneofs.get_mut(i)) {
                columns.push((part, bits));
            }
            absent.push(match &how {
                How::Many(_) => Absent::List,
                How::Map(_) => Absent::Map,
                How::One(_) if field.is_required() => Absent::Required(name.clone()),
                How::One(_) => self::absent(&field),
            });
            fields.push(Field { number: field.number(), name: name.clone(), part: Some(part), oneof, how, bits });
            parts.push(Part { name, slot, source: part });
        }
        let shown: HashSet<u32> = fields.iter().map(|field| field.number).collect();
        for field in declared {
            let oneof = field.containing_oneof().and_then(|oneof| oneofs.get(oneof.full_name()).copied());
            if oneof.is_some() && !shown.contains(&field.number()) {
                let how = How::One(wire_of(&field));
                let (name, number) = (field.name().into(), field.number());
                fields.push(Field { number, name, part: None, oneof, how, bits: 0 });
            }
        }
        fields.sort_by_key(|field| field.number);
        let has_json = fields.iter().any(|field| field.how.has_json());
        Ok((parts, Message { fields, absent, has_json, oneofs: columns_of_oneofs }))
    }

    /// Returns the column of a field; None if it is left out because of the recursion depth.
    fn field(&mut self, field: &FieldDescriptor, wanted: Option<&DataType>) -> Result<Option<(Slot, How)>, Fault> {
        if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
            return self.map(&entry, slot::value_of(wanted));
        }
        let (deeper, wanted) = if field.is_list() { (1, slot::item_of(wanted)) } else { (0, wanted) };
        let Some((shape, value)) = self.value(field, deeper, wanted)? else { return Ok(None) };
        if field.is_list() {
            let item = Box::new(Slot { shape, nullable: false });
            return Ok(Some((Slot { shape: Shape::List(item), nullable: true }, How::Many(value))));
        }
        Ok(Some((Slot { shape, nullable: !field.is_required() }, How::One(value))))
    }

    fn map(&mut self, entry: &MessageDescriptor, wanted: Option<&DataType>) -> Result<Option<(Slot, How)>, Fault> {
        let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        // The values of a map are in the structs of its entries.
        let Some((key_shape, key_value)) = self.value(&key, 2, None)? else { return Ok(None) };
        let value_found = self.value(&value, 2, wanted).map_err(|fault| fault.within(&ENTRY))?;
        let Some((value_shape, value_value)) = value_found else { return Ok(None) };
        let absent = vec![
            self::absent(&key),
            match &value_value {
                Value::Message(_) | Value::Instant(_) | Value::Json(_) => Absent::Empty(1),
                _ => self::absent(&value),
            },
        ];
        let slots = [key_shape, value_shape].map(|shape| Slot { shape, nullable: false });
        let field = |number: u32, name: &Arc<str>, value: Value| Field {
            number,
            name: name.clone(),
            part: Some(number as usize - 1),
            oneof: None,
            how: How::One(value),
            bits: 0,
        };
        // A fault in a value has the path of the map's values.
        let fields = vec![field(1, &"key".into(), key_value), field(2, &ENTRY, value_value)];
        let has_json = fields.iter().any(|field| field.how.has_json());
        let mut plan = Message { fields, absent, has_json, oneofs: vec![] };
        for (field, slot) in plan.fields.iter_mut().zip(&slots) {
            field.bits = bits_of(slot, &field.how);
        }
        let [key, value] = slots;
        let shape = Shape::Map(Box::new(Entry { key, value }));
        Ok(Some((Slot { shape, nullable: true }, How::Map(plan))))
    }

    /// Returns the column of a value that is `deeper` levels below the field's column.
    fn value(
        &mut self,
        field: &FieldDescriptor,
        deeper: usize,
        wanted: Option<&DataType>,
    ) -> Result<Option<(Shape, Value)>, Fault> {
        self.columns += 1;
        if self.columns > MAX_COLUMNS {
            return Err(Fault::new(format!("the message has more than {MAX_COLUMNS} columns")));
        }
        self.nesting += 1 + deeper;
        if self.nesting > MAX_NESTING {
            return Err(Fault::new(format!("the types of the message are nested more than {MAX_NESTING} deep")));
        }
        let found = match field.kind() {
            Kind::Int32 => Some((Shape::Int, Value::Int32)),
            Kind::Sint32 => Some((Shape::Int, Value::Sint32)),
            Kind::Sfixed32 => Some((Shape::Int, Value::Sfixed32)),
            Kind::Uint32 => Some((Shape::Long, Value::Uint32)),
            Kind::Fixed32 => Some((Shape::Long, Value::Fixed32)),
            Kind::Int64 | Kind::Uint64 => Some((Shape::Long, Value::Int64)),
            Kind::Sint64 => Some((Shape::Long, Value::Sint64)),
            Kind::Fixed64 | Kind::Sfixed64 => Some((Shape::Long, Value::Fixed64)),
            Kind::Bool => Some((Shape::Boolean, Value::Bool)),
            Kind::Float => Some((Shape::Float, Value::Float)),
            Kind::Double => Some((Shape::Double, Value::Double)),
            Kind::String => Some((Shape::Text, Value::Text)),
            Kind::Bytes => Some((Shape::Binary, Value::Text)),
            Kind::Enum(kind) => Some((Shape::Text, Value::Enum(Symbols::new(&kind)))),
            Kind::Message(kind) => match instant(&kind) {
                Some(found) if !field.is_group() => Some(found),
                _ => self.nested(&kind, field.is_group(), wanted)?,
            },
        };
        self.nesting -= 1 + deeper;
        Ok(found)
    }

    fn nested(
        &mut self,
        kind: &MessageDescriptor,
        group: bool,
        wanted: Option<&DataType>,
    ) -> Result<Option<(Shape, Value)>, Fault> {
        let open = self.open.get(kind.full_name()).copied().unwrap_or(0);
        if !group && (is_json(kind) || open > 0 && self.recursion <= 0) {
            return Ok(Some((Shape::Json, Value::Json(kind.clone()))));
        }
        if open > 0 && self.recursion <= 0 {
            return Err(Fault::new(format!("the group {} contains itself, and a column cannot", kind.full_name())));
        }
        if open > 0 && open >= self.recursion {
            return Ok(None);
        }
        self.open.insert(kind.full_name().to_owned(), open + 1);
        let (parts, plan) = self.message(kind, wanted)?;
        self.open.insert(kind.full_name().to_owned(), open);
        let value = if group { Value::Group(plan) } else { Value::Message(plan) };
        // A message without columns is a boolean: whether it is present.
        let shape = if parts.is_empty() { Shape::Boolean } else { Shape::Struct(parts) };
        Ok(Some((shape, value)))
    }
}

/// Returns a value of the same wire type, for a skipped field.
pub fn wire_of(field: &FieldDescriptor) -> Value {
    match field.kind() {
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => Value::Float,
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => Value::Double,
        Kind::String | Kind::Bytes => Value::Text,
        Kind::Message(_) if field.is_group() => {
            Value::Group(Message { fields: vec![], absent: vec![], has_json: false, oneofs: vec![] })
        }
        Kind::Message(_) => Value::Text,
        _ => Value::Int64,
    }
}

/// Returns the column of Google's `Timestamp` and `Duration`.
fn instant(kind: &MessageDescriptor) -> Option<(Shape, Value)> {
    let found = instant_of(kind)?;
    let shape = if found.is_duration { Shape::Duration } else { Shape::Timestamp { utc: true } };
    Some((shape, Value::Instant(found)))
}

/// Returns whether a message, such as `Struct`, means JSON.
pub fn is_json(kind: &MessageDescriptor) -> bool {
    matches!(kind.full_name(), "google.protobuf.Struct" | "google.protobuf.Value" | "google.protobuf.ListValue")
}

/// Returns Google's `Timestamp` or `Duration` by name, as in Spark.
pub fn instant_of(kind: &MessageDescriptor) -> Option<Instant> {
    let [seconds, nanos] = kind.descriptor_proto().field.as_slice() else { return None };
    let number = |name: &str, wanted: &Kind| {
        let field = kind.get_field_by_name(name)?;
        (field.kind() == *wanted && !field.is_list()).then(|| field.number())
    };
    if !matches!(kind.name(), "Timestamp" | "Duration") || (seconds.name(), nanos.name()) != ("seconds", "nanos") {
        return None;
    }
    let (seconds, nanos) = (number("seconds", &Kind::Int64)?, number("nanos", &Kind::Int32)?);
    Some(Instant { seconds, nanos, is_duration: kind.name() == "Duration" })
}

/// Returns the symbol of a number; if several symbols have the number, the first of the schema counts.
pub fn symbol_of(kind: &EnumDescriptor, number: i32) -> Option<&str> {
    let declared = &kind.enum_descriptor_proto().value;
    declared.iter().find(|symbol| symbol.number() == number).map(|symbol| symbol.name())
}

/// Returns the value of a field that a message lacks; the field is neither repeated nor required.
fn absent(field: &FieldDescriptor) -> Absent {
    let has_default = field.field_descriptor_proto().default_value.is_some();
    if field.supports_presence() && !has_default && !field.parent_message().is_map_entry() {
        return Absent::Null;
    }
    let symbol = |number: i32| match field.kind() {
        Kind::Enum(kind) => symbol_of(&kind, number).map(|name| name.as_bytes().into()),
        _ => None,
    };
    Absent::Value(match field.default_value() {
        Explicit::Bool(value) => Constant::Bool(value),
        Explicit::I32(value) => Constant::Int(value),
        Explicit::I64(value) => Constant::Long(value),
        Explicit::U32(value) => Constant::Long(value.into()),
        Explicit::U64(value) => Constant::Long(value as i64),
        Explicit::F32(value) => Constant::Float(value),
        Explicit::F64(value) => Constant::Double(value),
        Explicit::String(value) => Constant::Bytes(value.into_bytes().into()),
        Explicit::Bytes(value) => Constant::Bytes(value.to_vec().into()),
        Explicit::EnumNumber(number) => Constant::Bytes(symbol(number).unwrap_or_default()),
        _ => return Absent::Null,
    })
}

/// Returns the memory of an item of the field in bits, without its texts and inner items.
fn bits_of(slot: &Slot, how: &How) -> u64 {
    match (&slot.shape, how) {
        (Shape::List(item), How::Many(_)) => item.bits_of_item(),
        (Shape::Map(entry), How::Map(_)) => entry.bits(),
        _ => slot.bits(),
    }
}
