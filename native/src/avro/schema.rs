//! An Avro schema, parsed from its JSON.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::values::fault::Fault;

/// The position of a type in its [`Schema`].
pub type Id = usize;

/// The types of a schema. A recursive type refers to itself by its position.
#[derive(Clone, Debug)]
pub struct Schema {
    types: Vec<Type>,
    pub root: Id,
}

#[derive(Clone, Debug)]
pub struct Type {
    pub kind: Kind,
    pub logical: Option<Logical>,
    /// The full name; None for types without a name.
    pub name: Option<Arc<str>>,
    /// Full names.
    pub aliases: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed(usize),
    Enum { symbols: Vec<Arc<str>>, default: Option<Arc<str>> },
    Record(Vec<Field>),
    Array(Id),
    Map(Id),
    Union(Vec<Id>),
}

#[derive(Clone, Debug)]
pub struct Field {
    pub name: Arc<str>,
    pub aliases: Vec<Arc<str>>,
    pub kind: Id,
    pub default: Option<Value>,
}

/// The logical type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Logical {
    Date,
    Time(Unit),
    /// `utc`: an instant, not a local time.
    Timestamp {
        unit: Unit,
        utc: bool,
    },
    Decimal {
        precision: u32,
        scale: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Millis,
    Micros,
    Nanos,
}

impl Unit {
    pub fn nanos(self) -> i64 {
        match self {
            Self::Millis => 1_000_000,
            Self::Micros => 1000,
            Self::Nanos => 1,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Millis => "millis",
            Self::Micros => "micros",
            Self::Nanos => "nanos",
        }
    }
}

impl fmt::Display for Logical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Date => f.write_str("date"),
            Self::Time(unit) => write!(f, "time-{}", unit.name()),
            Self::Timestamp { unit, utc } => {
                write!(f, "{}timestamp-{}", if *utc { "" } else { "local-" }, unit.name())
            }
            Self::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
        }
    }
}

impl Type {
    /// Makes a type without a name; `object`, which defines it in the schema, may give its logical type. A logical type
    /// that is unknown or does not fit is ignored, as Avro's specification demands.
    fn without_name(kind: Kind, object: &Map<String, Value>) -> Self {
        let name = object.get("logicalType").and_then(Value::as_str);
        let logical = name.and_then(|name| logical(name, &kind, object));
        Self { kind, logical, ..NULL.clone() }
    }
}

static NULL: Type = Type { kind: Kind::Null, logical: None, name: None, aliases: vec![] };
/// The limit on the length of a fixed type.
const FIXED_LIMIT: u64 = 1 << 30;

impl Schema {
    /// Parses a schema. The branches of a union at the root may be separate schemas that define a name differently.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let json = parsed(text)?;
        let mut parser = Parser::default();
        let root = match &json {
            Value::Array(branches) => {
                let mut ids = vec![];
                for branch in branches {
                    parser.defined.clear();
                    ids.push(parser.parse(branch, "")?);
                }
                parser.union(ids)?
            }
            other => parser.parse(other, "")?,
        };
        let types = parser.types.into_iter().map(|kind| kind.unwrap_or_else(|| NULL.clone())).collect();
        Ok(Self { types, root })
    }

    pub fn get(&self, id: Id) -> &Type {
        self.types.get(id).unwrap_or(&NULL)
    }

    pub fn kind(&self, id: Id) -> &Kind {
        &self.get(id).kind
    }

    pub fn types(&self) -> &[Type] {
        &self.types
    }

    pub fn types_mut(&mut self) -> &mut [Type] {
        &mut self.types
    }

    /// Returns the name of a type for messages.
    pub fn describe(&self, id: Id) -> String {
        let kind = self.get(id);
        let physical = match (&kind.kind, &kind.name) {
            (Kind::Null, _) => "null".into(),
            (Kind::Boolean, _) => "boolean".into(),
            (Kind::Int, _) => "int".into(),
            (Kind::Long, _) => "long".into(),
            (Kind::Float, _) => "float".into(),
            (Kind::Double, _) => "double".into(),
            (Kind::Bytes, _) => "bytes".into(),
            (Kind::String, _) => "string".into(),
            (Kind::Fixed(size), name) => format!("fixed {} of {size} bytes", name.as_deref().unwrap_or_default()),
            (Kind::Enum { .. }, name) => format!("enum {}", name.as_deref().unwrap_or_default()),
            (Kind::Record(_), name) => format!("record {}", name.as_deref().unwrap_or_default()),
            (Kind::Array(_), _) => "array".into(),
            (Kind::Map(_), _) => "map".into(),
            (Kind::Union(branches), _) => {
                let names: Vec<_> = branches.iter().map(|&branch| self.describe(branch)).collect();
                format!("union of {}", names.join(", "))
            }
        };
        match &kind.logical {
            Some(logical) => format!("{physical} ({logical})"),
            None => physical,
        }
    }
}

/// The limit on the levels of a schema's JSON. A nested nullable record takes four levels, and a column nests at most
/// 64.
const MAX_DEPTH: usize = 260;

fn parsed(text: &str) -> Result<Value, Fault> {
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => depth += 1,
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(Fault::new(format!("the schema is nested more than {MAX_DEPTH} deep")));
        }
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.disable_recursion_limit();
    let mut values = reader.into_iter::<Value>();
    match (values.next(), values.next()) {
        (Some(Ok(value)), None) => Ok(value),
        (Some(Err(error)), _) => Err(Fault::new(format!("the schema is not valid JSON: {error}"))),
        _ => Err(Fault::new("the schema is not valid JSON: it is no single value")),
    }
}

/// Returns the part of a full name after its namespace.
pub fn simple(name: Option<&str>) -> &str {
    let name = name.unwrap_or_default();
    name.rsplit_once('.').map_or(name, |(_, simple)| simple)
}

fn namespace(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(space, _)| space)
}

fn qualified(name: &str, space: &str) -> Arc<str> {
    match name.strip_prefix('.') {
        Some(name) => name.into(),
        None if name.contains('.') || space.is_empty() => name.into(),
        None => format!("{space}.{name}").into(),
    }
}

#[derive(Default)]
struct Parser {
    /// The types; None for a named type whose definition is not finished.
    types: Vec<Option<Type>>,
    /// The newest type of each name.
    names: HashMap<Arc<str>, Id>,
    /// The names that the schema has defined.
    defined: HashSet<Arc<str>>,
}

impl Parser {
    fn parse(&mut self, json: &Value, space: &str) -> Result<Id, Fault> {
        match json {
            Value::String(name) => self.reference(name, space),
            Value::Array(branches) => {
                let ids = branches.iter().map(|branch| self.parse(branch, space)).collect::<Result<_, _>>()?;
                self.union(ids)
            }
            Value::Object(object) => self.object(object, space),
            _ => Err(Fault::new("a type of the schema is neither a name, an object nor a list")),
        }
    }

    fn add(&mut self, kind: Kind) -> Id {
        self.types.push(Some(Type { kind, ..NULL.clone() }));
        self.types.len() - 1
    }

    fn reference(&mut self, name: &str, space: &str) -> Result<Id, Fault> {
        if let Some(kind) = primitive(name) {
            return Ok(self.add(kind));
        }
        let known = self.names.get(&qualified(name, space)).or_else(|| self.names.get(name));
        known.copied().ok_or_else(|| Fault::new(format!("the schema has no type {name}")))
    }

    fn union(&mut self, ids: Vec<Id>) -> Result<Id, Fault> {
        let mut seen = HashSet::new();
        for &id in &ids {
            let Some(Some(branch)) = self.types.get(id) else { continue };
            let same =
                branch.name.clone().unwrap_or_else(|| format!("{:?}", std::mem::discriminant(&branch.kind)).into());
            if matches!(branch.kind, Kind::Union(_)) {
                return Err(Fault::new("a union of the schema directly contains a union"));
            }
            if !seen.insert(same) {
                return Err(Fault::new("a union of the schema has a type twice"));
            }
        }
        Ok(self.add(Kind::Union(ids)))
    }

    fn object(&mut self, object: &Map<String, Value>, space: &str) -> Result<Id, Fault> {
        let kind = match object.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            Some(nested @ (Value::Object(_) | Value::Array(_))) => return self.parse(nested, space),
            _ => return Err(Fault::new("an object of the schema has no type")),
        };
        if let Some(kind) = primitive(kind) {
            self.types.push(Some(Type::without_name(kind, object)));
            return Ok(self.types.len() - 1);
        }
        match kind {
            "array" => {
                let items = object.get("items").ok_or_else(|| Fault::new("an array of the schema has no items"))?;
                let items = self.parse(items, space)?;
                Ok(self.add(Kind::Array(items)))
            }
            "map" => {
                let values = object.get("values").ok_or_else(|| Fault::new("a map of the schema has no values"))?;
                let values = self.parse(values, space)?;
                Ok(self.add(Kind::Map(values)))
            }
            "record" | "error" | "enum" | "fixed" => self.named(kind, object, space),
            name => self.reference(name, space),
        }
    }

    fn named(&mut self, kind: &str, object: &Map<String, Value>, space: &str) -> Result<Id, Fault> {
        let name = object.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Fault::new(format!("a type {kind} of the schema has no name")))?;
        let space = object.get("namespace").and_then(Value::as_str).unwrap_or(space);
        let name = qualified(name, space);
        let space = namespace(&name).to_owned();
        let aliases = texts(object, "aliases").map(|alias| qualified(alias, &space)).collect();
        let id = self.types.len();
        self.types.push(None);
        self.names.insert(name.clone(), id);
        if primitive(&name).is_some() || !self.defined.insert(name.clone()) {
            return Err(Fault::new(format!("the schema defines {name} twice")));
        }
        let kind = match kind {
            "fixed" => {
                let size = object.get("size").and_then(Value::as_u64).filter(|&size| size <= FIXED_LIMIT);
                Kind::Fixed(size.ok_or_else(|| Fault::new(format!("the size of fixed {name} is not valid")))? as usize)
            }
            "enum" => {
                let symbols: Vec<Arc<str>> = texts(object, "symbols").map(Arc::from).collect();
                let default = object.get("default").and_then(Value::as_str).map(Arc::from);
                if default.as_ref().is_some_and(|default| !symbols.contains(default)) {
                    return Err(Fault::new(format!("the default of enum {name} is none of its symbols")));
                }
                Kind::Enum { symbols, default }
            }
            _ => Kind::Record(self.fields(&name, object, &space)?),
        };
        if let Some(place) = self.types.get_mut(id) {
            *place = Some(Type { name: Some(name), aliases, ..Type::without_name(kind, object) });
        }
        Ok(id)
    }

    fn fields(&mut self, record: &str, object: &Map<String, Value>, space: &str) -> Result<Vec<Field>, Fault> {
        let Some(Value::Array(list)) = object.get("fields") else {
            return Err(Fault::new(format!("record {record} of the schema has no fields")));
        };
        let mut fields: Vec<Field> = vec![];
        let mut names = HashSet::new();
        for field in list {
            let name = field.get("name").and_then(Value::as_str);
            let name: Arc<str> =
                name.ok_or_else(|| Fault::new(format!("a field of record {record} has no name")))?.into();
            if !names.insert(name.clone()) {
                return Err(Fault::new(format!("record {record} has the field {name} twice")));
            }
            let kind = field.get("type").ok_or_else(|| Fault::new("the field has no type").within(&name))?;
            let kind = self.parse(kind, space).map_err(|fault| fault.within(&name))?;
            let aliases = field.as_object().map(|field| texts(field, "aliases").map(Arc::from).collect());
            fields.push(Field {
                name,
                aliases: aliases.unwrap_or_default(),
                kind,
                default: field.get("default").cloned(),
            });
        }
        Ok(fields)
    }
}

fn primitive(name: &str) -> Option<Kind> {
    Some(match name {
        "null" => Kind::Null,
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bytes" => Kind::Bytes,
        "string" => Kind::String,
        _ => return None,
    })
}

fn texts<'a>(object: &'a Map<String, Value>, name: &str) -> impl Iterator<Item = &'a str> {
    object.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the logical type with a name, like Java's `LogicalTypes.fromSchemaIgnoreInvalid`; None: invalid.
fn logical(name: &str, kind: &Kind, object: &Map<String, Value>) -> Option<Logical> {
    let timestamp = |unit, utc| Some(Logical::Timestamp { unit, utc });
    match (name, kind) {
        ("date", Kind::Int) => Some(Logical::Date),
        ("time-millis", Kind::Int) => Some(Logical::Time(Unit::Millis)),
        ("time-micros", Kind::Long) => Some(Logical::Time(Unit::Micros)),
        ("timestamp-millis", Kind::Long) => timestamp(Unit::Millis, true),
        ("timestamp-micros", Kind::Long) => timestamp(Unit::Micros, true),
        ("timestamp-nanos", Kind::Long) => timestamp(Unit::Nanos, true),
        ("local-timestamp-millis", Kind::Long) => timestamp(Unit::Millis, false),
        ("local-timestamp-micros", Kind::Long) => timestamp(Unit::Micros, false),
        ("local-timestamp-nanos", Kind::Long) => timestamp(Unit::Nanos, false),
        ("decimal", Kind::Bytes | Kind::Fixed(_)) => {
            let precision = u32::try_from(object.get("precision")?.as_u64()?).ok()?;
            let scale = match object.get("scale") {
                Some(scale) => u32::try_from(scale.as_u64()?).ok()?,
                None => 0,
            };
            let most = match kind {
                Kind::Fixed(size) => (std::f64::consts::LOG10_2 * (8.0 * *size as f64 - 1.0)).floor(),
                _ => f64::MAX,
            };
            let fits = precision > 0 && scale <= precision && f64::from(precision) <= most;
            fits.then_some(Logical::Decimal { precision, scale })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Schema {
        Schema::parse(text).unwrap()
    }

    #[test]
    fn names_are_qualified_by_the_enclosing_namespace() {
        let schema = parse(
            r#"{"type": "record", "name": "a.b.R", "aliases": ["Old", "x.Older"], "fields": [
                {"name": "f", "type": {"type": "fixed", "name": "F", "size": 4}},
                {"name": "g", "type": "F"}, {"name": "h", "type": "a.b.F"},
                {"name": "i", "type": {"type": "enum", "name": "E", "namespace": "", "symbols": ["A"]}},
                {"name": "j", "type": "E"}]}"#,
        );
        let root = schema.get(schema.root);
        assert_eq!(root.name.as_deref(), Some("a.b.R"));
        assert_eq!(root.aliases, vec![Arc::from("a.b.Old"), Arc::from("x.Older")]);
        let Kind::Record(fields) = &root.kind else { panic!() };
        let names: Vec<_> = fields.iter().map(|field| schema.get(field.kind).name.as_deref().unwrap()).collect();
        assert_eq!(names, ["a.b.F", "a.b.F", "a.b.F", "E", "E"]);
    }

    #[test]
    fn a_schema_that_is_not_valid_is_refused() {
        for text in [
            "",
            "7",
            r#""text""#,
            r#"{"type": "array"}"#,
            r#"["int", "int"]"#,
            r#"["int", ["long"]]"#,
            r#"{"type": "fixed", "name": "F", "size": -1}"#,
            r#"{"type": "record", "name": "R"}"#,
            r#"{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}"#,
            r#"{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}"#,
        ] {
            assert!(Schema::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_logical_type_that_does_not_fit_is_ignored() {
        let logical = |text: &str| {
            let schema = parse(text);
            schema.get(schema.root).logical.clone()
        };
        let decimal = |precision, scale| Some(Logical::Decimal { precision, scale });
        assert_eq!(
            logical(r#"{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}"#),
            decimal(9, 2)
        );
        assert_eq!(logical(r#"{"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 9}"#), None);
        let fixed = |precision| {
            let head = r#"{"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": "#;
            logical(&format!("{head}{precision}}}"))
        };
        assert_eq!((fixed(9), fixed(10)), (decimal(9, 0), None));
        assert_eq!(logical(r#"{"type": "long", "logicalType": "date"}"#), None);
    }
}
