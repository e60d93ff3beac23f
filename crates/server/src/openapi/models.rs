//! The schemas of models, from the descriptors of `outrigger.v1`.

use std::collections::{BTreeMap, HashMap};

use outrigger_proto::{
    outrigger::v1::FILE_DESCRIPTOR_SET,
    shown::fields::{MESSAGES, OMITTED, RENAMED, SHOWN_BY},
};
use prost::Message as _;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use serde_json::{Map, Value, json};

use super::reference;

/// The message that a model is shown as.
const ROOT: &str = "Model";
/// Fields that lists of models do not have.
const IN_DETAIL: [&str; 1] = ["ModelVersion.history"];

/// The numbers of the fields in descriptors by which comments are located.
const MESSAGE_TYPE: i32 = 4;
const FIELD: i32 = 2;

/// The schemas of a model, of the messages in it, and of a list of models.
pub(super) fn schemas() -> Map<String, Value> {
    let files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("our own descriptor set");
    let messages = Messages::of(&files);
    let mut schemas = Map::new();
    let mut open = vec![ROOT];
    while let Some(name) = open.pop() {
        if schemas.contains_key(name) {
            continue;
        }
        let (schema, parts) = messages.schema(name);
        schemas.insert(name.to_owned(), schema);
        open.extend(parts);
    }
    let model = &mut schemas[ROOT];
    model["properties"]["image"] = json!({
        "type": "string",
        "description": "The repository of the model's images.",
    });
    model["required"].as_array_mut().expect("a list").push("image".into());
    let models = json!({"type": "array", "items": reference(ROOT)});
    let list = json!({
        "type": "object",
        "required": ["models"],
        "properties": {"models": models},
    });
    schemas.insert("Models".to_owned(), list);
    schemas
}

/// A message with its file and its number in it.
type Located<'a> = (&'a FileDescriptorProto, i32, &'a DescriptorProto);

/// The messages of `outrigger.v1` by name.
struct Messages<'a> {
    messages: HashMap<&'a str, Located<'a>>,
    comments: BTreeMap<(&'a str, &'a [i32]), String>,
}

impl<'a> Messages<'a> {
    fn of(files: &'a FileDescriptorSet) -> Self {
        let mut found = Self { messages: HashMap::new(), comments: BTreeMap::new() };
        let own = files.file.iter().filter(|file| file.package() == "outrigger.v1");
        for file in own {
            for (number, message) in (0..).zip(&file.message_type) {
                found.messages.insert(message.name(), (file, number, message));
            }
            let locations = file.source_code_info.iter().flat_map(|info| &info.location);
            for location in locations {
                let lines = location.leading_comments().lines().map(str::trim);
                let text = lines.collect::<Vec<_>>().join(" ").trim().to_owned();
                found.comments.insert((file.name(), &location.path), text);
            }
        }
        found
    }

    /// The schema of a message, and the messages that it refers to.
    fn schema(&self, name: &str) -> (Value, Vec<&'a str>) {
        let (file, number, message) = self.messages[name];
        let comment = |path: &[i32]| self.comments.get(&(file.name(), path)).cloned();
        let (mut properties, mut required, mut parts) = (Map::new(), Vec::new(), Vec::new());
        for (at, field) in (0..).zip(&message.field) {
            let path = format!("{name}.{}", field.name());
            if OMITTED.contains(&path.as_str()) {
                continue;
            }
            let key = RENAMED.iter().find(|(renamed, _)| *renamed == path);
            let key = key.map_or(field.name(), |(_, key)| key);
            let mut schema = self.field(&path, field);
            let text = comment(&[MESSAGE_TYPE, number, FIELD, at]).unwrap_or_default();
            if !text.is_empty() {
                schema["description"] = json!(text);
            }
            properties.insert(key.to_owned(), schema);
            if !IN_DETAIL.contains(&path.as_str()) {
                required.push(key);
            }
            parts.extend(self.part(field));
        }
        let schema = json!({
            "type": "object",
            "description": comment(&[MESSAGE_TYPE, number]).unwrap_or_default(),
            "required": required,
            "properties": properties,
        });
        (schema, parts)
    }

    /// The message of a field that is shown as an object.
    fn part(&self, field: &'a FieldDescriptorProto) -> Option<&'a str> {
        let name = last(field.type_name());
        (field.r#type() == Type::Message && MESSAGES.contains(&name)).then_some(name)
    }

    fn field(&self, path: &str, field: &'a FieldDescriptorProto) -> Value {
        let shown = SHOWN_BY.iter().find(|(_, fields)| fields.contains(&path));
        match shown.map(|(by, _)| *by) {
            Some("text") => json!({"type": ["string", "null"]}),
            Some("number") => json!({"type": ["integer", "null"]}),
            Some("time") => json!({"type": ["string", "null"], "format": "date-time"}),
            Some("seconds") => json!({"type": ["number", "null"], "minimum": 0}),
            Some(_) => json!({"type": "string", "enum": words(self.values(field))}),
            None if field.label() == Label::Repeated => {
                json!({"type": "array", "items": self.item(field)})
            }
            None if field.r#type() == Type::Message => {
                json!({"anyOf": [self.item(field), {"type": "null"}]})
            }
            None => self.item(field),
        }
    }

    fn item(&self, field: &'a FieldDescriptorProto) -> Value {
        match (self.part(field), field.r#type()) {
            (Some(message), _) => reference(message),
            (None, Type::String) => json!({"type": "string"}),
            (None, Type::Bool) => json!({"type": "boolean"}),
            (None, Type::Uint32 | Type::Uint64) => json!({"type": "integer", "minimum": 0}),
            (None, Type::Int32 | Type::Int64) => json!({"type": "integer"}),
            (None, Type::Float | Type::Double) => json!({"type": "number"}),
            (None, other) => unreachable!("a model has no {other:?}"),
        }
    }

    /// The enum of a field, which is nested in a message.
    fn values(&self, field: &FieldDescriptorProto) -> &'a EnumDescriptorProto {
        let mut path = field.type_name().rsplit('.');
        let (name, message) = (path.next().unwrap_or_default(), path.next().unwrap_or_default());
        let (_, _, message) = self.messages[message];
        message.enum_type.iter().find(|values| values.name() == name).expect("an enum of ours")
    }
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}

/// The words that the values of an enum are shown as.
fn words(values: &EnumDescriptorProto) -> Vec<String> {
    let prefix = format!("{}_", values.name().to_uppercase());
    // 0 stands for a message without the field.
    let names = values.value.iter().filter(|value| value.number() != 0).map(|value| value.name());
    names.map(|name| name.strip_prefix(&prefix).unwrap_or(name).to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_described_as_they_are_shown() {
        let schemas = schemas();
        let version = &schemas["ModelVersion"];
        let states = &version["properties"]["state"]["enum"];
        assert_eq!(*states, json!(["new", "downloaded", "loaded", "available"]));
        assert_eq!(version["properties"]["servable"]["type"], json!(["string", "null"]));
        let required = version["required"].as_array().unwrap();
        assert!(required.contains(&json!("digest")) && !required.contains(&json!("history")));
        let replay = &schemas["Replay"]["properties"];
        assert!(replay.get("took").is_none() && replay.get("took_seconds").is_some());
        assert!(schemas["Model"]["properties"].get("engines").is_none());
        let failure = &schemas["Tag"]["properties"]["failure"];
        assert_eq!(failure["anyOf"][0], reference("Failure"));
        assert!(failure["description"].as_str().unwrap().contains("look-up"), "{failure}");
        assert!(!schemas.contains_key("Canary") && !schemas.contains_key("Engine"));
    }
}
