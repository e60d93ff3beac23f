//! Reads `outrigger.v1.ModelCanaryConfig` from an image's label or a configuration file,
//! and merges layers of it.

use std::sync::LazyLock;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use outrigger_proto::outrigger::v1::{FILE_DESCRIPTOR_SET, ModelCanaryConfig};
use prost_reflect::{
    DescriptorPool, DynamicMessage, Kind, MessageDescriptor, ReflectMessage as _, Value,
};

use crate::settings::InvalidSettings;

/// The image label, or manifest annotation, with the configuration.
pub const LABEL: &str = "dev.outrigger.canary";

static DESCRIPTOR: LazyLock<MessageDescriptor> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("our own descriptor set");
    let name = "outrigger.v1.ModelCanaryConfig";
    pool.get_message_by_name(name).expect("our descriptor set has the message")
});

/// A partial canary configuration. Each setting of a higher layer replaces that of a
/// lower one.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer(DynamicMessage);

impl Default for Layer {
    fn default() -> Self {
        Self(DynamicMessage::new(DESCRIPTOR.clone()))
    }
}

impl Layer {
    /// Reads protobuf's JSON form. Unknown keys and enum names are refused.
    ///
    /// # Errors
    /// The JSON is not a valid `ModelCanaryConfig`.
    pub fn from_json(json: &serde_json::Value) -> Result<Self, InvalidSettings> {
        let read = DynamicMessage::deserialize(DESCRIPTOR.clone(), json);
        Self::known(read.map_err(|error| InvalidSettings::one(error.to_string()))?)
    }

    /// Wraps the message unless it has fields or enum values of a later version: the
    /// trial would then differ from what the configuration demands.
    fn known(message: DynamicMessage) -> Result<Self, InvalidSettings> {
        let mut problems = Vec::new();
        unknown(&message, "", &mut problems);
        if problems.is_empty() { Ok(Self(message)) } else { Err(InvalidSettings(problems)) }
    }

    /// Reads a label: the JSON form, or base64 of the binary form.
    ///
    /// # Errors
    /// The label has neither form.
    pub fn from_label(label: &str) -> Result<Self, InvalidSettings> {
        let label = label.trim();
        if label.starts_with('{') {
            // Parses the text directly, because errors then name line and column.
            let mut json = serde_json::Deserializer::from_str(label);
            let read = DynamicMessage::deserialize(DESCRIPTOR.clone(), &mut json)
                .and_then(|message| json.end().map(|()| message));
            return Self::known(read.map_err(|error| InvalidSettings::one(error.to_string()))?);
        }
        let neither = || InvalidSettings::one("neither JSON nor base64 of a message".to_owned());
        let bytes = STANDARD.decode(label).map_err(|_| neither())?;
        let message = DynamicMessage::decode(DESCRIPTOR.clone(), bytes.as_slice());
        Self::known(message.map_err(|_| neither())?)
    }

    /// Merges `above` over this layer.
    #[must_use]
    pub fn under(mut self, above: &Self) -> Self {
        merge(&mut self.0, &above.0);
        self
    }

    /// The typed message.
    pub fn message(&self) -> ModelCanaryConfig {
        self.0.transcode_to().expect("the descriptor is that of this message")
    }
}

/// Collects fields and enum values that the schema does not have.
fn unknown(message: &DynamicMessage, path: &str, problems: &mut Vec<String>) {
    let within = |name: &str| if path.is_empty() { name.into() } else { format!("{path}.{name}") };
    for field in message.unknown_fields() {
        problems.push(format!("{}: no such field", within(&format!("#{}", field.number()))));
    }
    for (field, value) in message.fields() {
        let path = within(field.name());
        match (field.kind(), value) {
            (Kind::Enum(choices), Value::EnumNumber(number))
                if choices.get_value(*number).is_none() =>
            {
                problems.push(format!("{path}: no enum value has the number {number}"));
            }
            (_, Value::Message(message)) => unknown(message, &path, problems),
            (_, Value::List(all)) => {
                let messages = all.iter().map(Value::as_message).enumerate();
                for (at, message) in messages.filter_map(|(at, it)| Some((at, it?))) {
                    unknown(message, &format!("{path}[{at}]"), problems);
                }
            }
            _ => {}
        }
    }
}

/// Merges our messages field by field; lists, durations and scalars are replaced as a
/// whole.
fn merge(below: &mut DynamicMessage, above: &DynamicMessage) {
    for (field, value) in above.fields() {
        let ours = |message: &DynamicMessage| {
            message.descriptor().parent_file().package_name() == "outrigger.v1"
        };
        match value {
            Value::Message(above) if ours(above) && below.has_field(&field) => {
                if let Some(below) = below.get_field_mut(&field).as_message_mut() {
                    merge(below, above);
                }
            }
            value => below.set_field(&field, value.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use serde_json::json;

    use super::*;

    fn layer(json: &serde_json::Value) -> Layer {
        Layer::from_json(json).expect("a valid configuration")
    }

    #[test]
    fn a_label_is_json_or_base64_of_the_binary_form() {
        let json = json!({"mode": "MODE_LOCAL", "minimum_time": "2.5s", "ramp": {"share": 0.2}});
        let read = Layer::from_label(&json.to_string()).expect("JSON");
        let encoded = STANDARD.encode(read.message().encode_to_vec());
        assert_eq!(Layer::from_label(&encoded), Ok(read));
        for bad in ["", "{", "{\"shares\": 1}", "{\"confidence\": \"high\"}", "@@", "AAAA"] {
            assert!(Layer::from_label(bad).is_err() || bad.is_empty(), "{bad:?}");
        }
    }

    #[test]
    fn unknown_fields_and_enum_values_are_refused() {
        let unknown = |label: &str| Layer::from_label(label).unwrap_err().to_string();
        for (label, expected) in [
            (r#"{"shares": 1}"#, "'shares' at line 1 column"),
            (r#"{"signals": {"latency": {"off": true}}}"#, "'off'"),
            (r#"{"mode": "MODE_BOLD"}"#, "'MODE_BOLD'"),
            (r#"{"mode": 9}"#, "mode: no enum value has the number 9"),
            (r#"{"ramp": {"share": 0.1, "evidence": {"first": 0.1}}}"#, "oneof 'kind'"),
            (r#"{"confidence": 0.9, "confidence": 0.99}"#, "confidence"),
            (r#"{"confidence": "high"}"#, "invalid float literal at line 1 column 21"),
            (r#"{"confidence": 0.9} and more"#, "trailing"),
        ] {
            assert!(
                unknown(label).contains(expected),
                "{expected} in {} of {label}",
                unknown(label)
            );
        }
        // Field 99 of the message, of its ramp, and of the second step; mode 9; an
        // on_starved with a string value.
        for (bytes, expected) in [
            (vec![0x98, 0x06, 1], Some("#99: no such field")),
            (vec![0x12, 3, 0x98, 0x06, 1], Some("ramp.#99: no such field")),
            (
                vec![0x12, 9, 0x12, 7, 0x0a, 0, 0x0a, 3, 0x98, 0x06, 1],
                Some("ramp.steps.steps[1].#99: no such field"),
            ),
            (vec![0x08, 9], Some("mode: no enum value has the number 9")),
            (vec![0x4a, 1, b'x'], None),
        ] {
            let refused = unknown(&STANDARD.encode(bytes));
            assert!(
                refused.contains(expected.unwrap_or("neither JSON nor")),
                "{expected:?} in {refused}"
            );
        }
    }

    #[test]
    fn settings_above_replace_those_below_one_by_one() {
        let below = layer(&json!({
            "confidence": 0.99,
            "minimumTime": "30.5s",
            "ramp": {"steps": {"steps": [{"share": 0.1}, {"share": 0.2}]}},
            "signals": {"latency": {"quantile": 0.9, "limits": {"margin": 0.1}}},
        }));
        let above = layer(&json!({
            "minimumTime": "10s",
            "ramp": {"steps": {"steps": [{"share": 0.5}]}},
            "signals": {"latency": {"limits": {"margin": 0.3}}, "errorRate": {"off": true}},
        }));
        let both = layer(&json!({
            "confidence": 0.99,
            "minimumTime": "10s",
            "ramp": {"steps": {"steps": [{"share": 0.5}]}},
            "signals": {
                "latency": {"quantile": 0.9, "limits": {"margin": 0.3}},
                "errorRate": {"off": true},
            },
        }));
        assert_eq!(below.clone().under(&above), both);
        let other = layer(&json!({"ramp": {"share": 0.3}}));
        let ramp = below.under(&other).message().ramp;
        assert_eq!(ramp, other.message().ramp, "another kind replaces the whole");
    }
}
