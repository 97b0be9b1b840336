//! The descriptors of messages, compiled here from the text of a `.proto` file, or by `protoc`.

use std::collections::HashMap;
use std::fmt::Display;

use protox::file::{File, FileResolver, GoogleFileResolver};
use protox::prost_reflect::prost::Message as _;
use protox::prost_reflect::prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    UninterpretedOption,
};
use protox::prost_reflect::{DescriptorPool, FileDescriptor, MessageDescriptor};

use super::well_known;
use crate::values::fault::Fault;

/// The name for the file whose text is given; no import has this name.
const ROOT: &str = "the schema.proto";

/// A schema.
pub enum Source<'a> {
    /// The text of a `.proto` file, and the texts of its imports by name.
    Text(&'a str, HashMap<String, String>),
    /// A `FileDescriptorSet`.
    Descriptors(&'a [u8]),
}

/// The descriptors of a schema.
pub struct Descriptors {
    pool: DescriptorPool,
    /// The file whose first message is the default.
    root: Option<FileDescriptor>,
}

struct Imports {
    texts: HashMap<String, String>,
    google: GoogleFileResolver,
}

impl FileResolver for Imports {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.texts.get(name).map(String::as_str).or_else(|| well_known::text_of(name)) {
            Some(text) => Ok(without_custom_options(File::from_source(name, text)?)),
            None => self.google.open_file(name),
        }
    }
}

impl Descriptors {
    pub fn new(source: Source<'_>) -> Result<Self, Fault> {
        let made = match source {
            Source::Text(text, imports) => Self::compile(text, imports),
            Source::Descriptors(bytes) => Self::of_set(bytes),
        }?;
        // A compiler makes the entries of maps; a schema may have its own, with other fields.
        for entry in made.pool.all_messages().filter(MessageDescriptor::is_map_entry) {
            if entry.get_field(1).is_none() || entry.get_field(2).is_none() {
                let name = entry.full_name();
                return Err(Fault::new(format!(
                    "message {name} is the entry of a map, and lacks the key or the value"
                )));
            }
        }
        Ok(made)
    }

    /// Compiles the text of a `.proto` file. `imports`: the texts of imports by name, except well-known files.
    fn compile(text: &str, imports: HashMap<String, String>) -> Result<Self, Fault> {
        let mut texts = imports;
        texts.insert(ROOT.to_owned(), text.to_owned());
        let mut compiler = protox::Compiler::with_file_resolver(Imports { texts, google: GoogleFileResolver::new() });
        compiler.include_imports(true).open_file(ROOT).map_err(refused)?;
        let pool = compiler.descriptor_pool();
        let root = pool.get_file_by_name(ROOT);
        Ok(Self { pool, root })
    }

    /// Takes a `FileDescriptorSet` of `protoc --descriptor_set_out --include_imports`.
    fn of_set(bytes: &[u8]) -> Result<Self, Fault> {
        let refused =
            |why: &dyn Display| Fault::new(format!("the bytes are no descriptor set with all imports: {why}"));
        let set = FileDescriptorSet::decode(bytes).map_err(|problem| refused(&problem))?;
        if let Some(file) = set.file.iter().find(|file| !matches!(file.syntax(), "" | "proto2" | "proto3")) {
            return Err(Fault::new(format!("{} has editions, which are not supported", file.name())));
        }
        let pool = DescriptorPool::from_file_descriptor_set(set).map_err(|problem| refused(&problem))?;
        // `protoc` writes a file after its imports.
        let root = pool.files().last();
        Ok(Self { pool, root })
    }

    /// Returns the message with this full name; without a name, the file's first message.
    pub fn message(&self, name: Option<&str>) -> Result<MessageDescriptor, Fault> {
        match name {
            Some(name) => {
                let found = self.pool.get_message_by_name(name.trim_start_matches('.'));
                found.ok_or_else(|| Fault::new(format!("there is no message {name}; a name begins with its package")))
            }
            None => {
                let first = self.root.as_ref().and_then(|file| file.messages().next());
                first.ok_or_else(|| Fault::new("the schema has no message"))
            }
        }
    }

    /// Returns the index of a message in each level of the schema's file, as records name it.
    pub fn indexes_of(&self, message: &MessageDescriptor) -> Result<Vec<i64>, Fault> {
        if self.root.as_ref() != Some(&message.parent_file()) {
            let name = message.full_name();
            return Err(Fault::new(format!(
                "message {name} is in an imported file, and records can name only messages of the schema"
            )));
        }
        // The path has the number of a field of the descriptor before each index.
        Ok(message.path().iter().skip(1).step_by(2).map(|&index| i64::from(index)).collect())
    }
}

/// Returns the names of a `.proto` file's messages without the package, each with the message's index in each level.
pub fn names(text: &str) -> Result<Vec<(Vec<i64>, String)>, Fault> {
    let file = File::from_source(ROOT, text).map_err(refused)?;
    let mut names = vec![];
    add_names(&file.file_descriptor_proto().message_type, &[], "", &mut names);
    Ok(names)
}

fn add_names(messages: &[DescriptorProto], above: &[i64], outer: &str, names: &mut Vec<(Vec<i64>, String)>) {
    for (i, message) in messages.iter().enumerate() {
        let path = [above, &[i as i64]].concat();
        let name = if outer.is_empty() { message.name().to_owned() } else { format!("{outer}.{}", message.name()) };
        names.push((path.clone(), name.clone()));
        add_names(&message.nested_type, &path, &name, names);
    }
}

/// Leaves out options that are extensions, such as Confluent's `field_meta`: no column depends on them, and their
/// declarations differ between versions.
fn without_custom_options(file: File) -> File {
    let mut proto = file.file_descriptor_proto().clone();
    let before = proto.clone();
    strip_file(&mut proto);
    // A parsed file keeps the lines of its text for error messages.
    if proto == before { file } else { File::from_file_descriptor_proto(proto) }
}

fn strip_file(file: &mut FileDescriptorProto) {
    strip(file.options.as_mut().map(|options| &mut options.uninterpreted_option));
    file.message_type.iter_mut().for_each(strip_message);
    file.enum_type.iter_mut().for_each(strip_enum);
    file.extension.iter_mut().for_each(strip_field);
    for service in &mut file.service {
        strip(service.options.as_mut().map(|options| &mut options.uninterpreted_option));
        for method in &mut service.method {
            strip(method.options.as_mut().map(|options| &mut options.uninterpreted_option));
        }
    }
}

fn strip_message(message: &mut DescriptorProto) {
    strip(message.options.as_mut().map(|options| &mut options.uninterpreted_option));
    message.field.iter_mut().for_each(strip_field);
    message.extension.iter_mut().for_each(strip_field);
    message.nested_type.iter_mut().for_each(strip_message);
    message.enum_type.iter_mut().for_each(strip_enum);
    for group in &mut message.oneof_decl {
        strip(group.options.as_mut().map(|options| &mut options.uninterpreted_option));
    }
    for range in &mut message.extension_range {
        strip(range.options.as_mut().map(|options| &mut options.uninterpreted_option));
    }
}

fn strip_field(field: &mut FieldDescriptorProto) {
    strip(field.options.as_mut().map(|options| &mut options.uninterpreted_option));
}

fn strip_enum(kind: &mut EnumDescriptorProto) {
    strip(kind.options.as_mut().map(|options| &mut options.uninterpreted_option));
    for value in &mut kind.value {
        strip(value.options.as_mut().map(|options| &mut options.uninterpreted_option));
    }
}

fn strip(options: Option<&mut Vec<UninterpretedOption>>) {
    if let Some(options) = options {
        options.retain(|option| !option.name.first().is_some_and(|part| part.is_extension));
    }
}

fn refused(problem: protox::Error) -> Fault {
    Fault::new(problem.to_string())
}
