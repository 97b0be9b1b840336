//! An Avro schema, parsed from its JSON.

use std::collections::HashMap;
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
    /// Whether it has a logical type that is none of [`Logical`] or does not fit.
    pub ignores_logical: bool,
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

/// The logical types that have a column type of their own. Spark reads all others as their physical type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logical {
    Date,
    TimestampMillis,
    TimestampMicros,
    LocalTimestampMillis,
    LocalTimestampMicros,
    Decimal {
        precision: u8,
        scale: i8,
    },
    /// A decimal with more digits than a column can have.
    LargeDecimal {
        precision: usize,
    },
}

impl Type {
    /// A type with the logical type that its object in the schema says.
    fn without_name(kind: Kind, object: &Map<String, Value>) -> Self {
        let logical = logical(&kind, object);
        let ignores_logical = logical.is_none() && object.contains_key("logicalType");
        Self { kind, logical, ignores_logical, ..NULL.clone() }
    }
}

static NULL: Type = Type { kind: Kind::Null, logical: None, ignores_logical: false, name: None, aliases: vec![] };
/// The digits of the largest decimal of Spark and of Arrow's decimal128.
const DECIMAL_DIGITS: usize = 38;
/// Lengths of the binary format that we accept for a fixed type.
const FIXED_LIMIT: u64 = 1 << 30;

impl Schema {
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let json: Value =
            serde_json::from_str(text).map_err(|error| Fault::new(format!("the schema is not valid JSON: {error}")))?;
        let mut parser = Parser::default();
        let root = parser.parse(&json, "")?;
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
        match (&kind.kind, &kind.name) {
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
        }
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
    /// None: a named type whose definition is not finished.
    types: Vec<Option<Type>>,
    names: HashMap<Arc<str>, Id>,
}

impl Parser {
    fn parse(&mut self, json: &Value, space: &str) -> Result<Id, Fault> {
        match json {
            Value::String(name) => self.reference(name, space),
            Value::Array(branches) => self.union(branches, space),
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

    fn union(&mut self, branches: &[Value], space: &str) -> Result<Id, Fault> {
        let mut ids: Vec<Id> = vec![];
        for branch in branches {
            ids.push(self.parse(branch, space)?);
        }
        let mut seen = std::collections::HashSet::new();
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
        if primitive(&name).is_some() || self.names.insert(name.clone(), id).is_some() {
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
        let mut names = std::collections::HashSet::new();
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

/// Returns the logical type; None if it is not known or does not fit, as Java's `LogicalTypes.fromSchemaIgnoreInvalid`.
fn logical(kind: &Kind, object: &Map<String, Value>) -> Option<Logical> {
    match (object.get("logicalType")?.as_str()?, kind) {
        ("date", Kind::Int) => Some(Logical::Date),
        ("timestamp-millis", Kind::Long) => Some(Logical::TimestampMillis),
        ("timestamp-micros", Kind::Long) => Some(Logical::TimestampMicros),
        ("local-timestamp-millis", Kind::Long) => Some(Logical::LocalTimestampMillis),
        ("local-timestamp-micros", Kind::Long) => Some(Logical::LocalTimestampMicros),
        ("decimal", Kind::Bytes | Kind::Fixed(_)) => {
            let precision = object.get("precision")?.as_u64().and_then(|digits| usize::try_from(digits).ok())?;
            let scale = match object.get("scale") {
                Some(scale) => usize::try_from(scale.as_u64()?).ok()?,
                None => 0,
            };
            let most = match kind {
                Kind::Fixed(size) => (std::f64::consts::LOG10_2 * (8.0 * *size as f64 - 1.0)).floor(),
                _ => f64::MAX,
            };
            if precision == 0 || scale > precision || precision as f64 > most {
                return None;
            }
            match (u8::try_from(precision), i8::try_from(scale)) {
                (Ok(precision), Ok(scale)) if usize::from(precision) <= DECIMAL_DIGITS => {
                    Some(Logical::Decimal { precision, scale })
                }
                _ => Some(Logical::LargeDecimal { precision }),
            }
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
            schema.get(schema.root).logical
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
