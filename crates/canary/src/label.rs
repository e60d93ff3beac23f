//! `outrigger.v1.ModelCanaryConfig` as an image's label or a configuration
//! file gives it, layer over layer.

use std::sync::LazyLock;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use outrigger_proto::outrigger::v1::{FILE_DESCRIPTOR_SET, ModelCanaryConfig};
use prost_reflect::{
    DescriptorPool, DynamicMessage, MessageDescriptor, ReflectMessage as _, Value,
};

use crate::settings::InvalidSettings;

/// The label, and the manifest's annotation, that holds it.
pub const LABEL: &str = "dev.outrigger.canary";

static DESCRIPTOR: LazyLock<MessageDescriptor> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("our own descriptor set");
    let name = "outrigger.v1.ModelCanaryConfig";
    pool.get_message_by_name(name).expect("it is in our descriptor set")
});

/// Some of a canary's settings; those of a layer above replace them one by one.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer(DynamicMessage);

impl Default for Layer {
    fn default() -> Self {
        Self(DynamicMessage::new(DESCRIPTOR.clone()))
    }
}

impl Layer {
    /// Reads protobuf's JSON form. Unknown keys are refused.
    ///
    /// # Errors
    /// It is no such message.
    pub fn from_json(json: &serde_json::Value) -> Result<Self, InvalidSettings> {
        let read = DynamicMessage::deserialize(DESCRIPTOR.clone(), json);
        read.map(Self).map_err(|error| InvalidSettings::one(error.to_string()))
    }

    /// Reads a label: the JSON form, or base64 of the binary form.
    ///
    /// # Errors
    /// It is neither.
    pub fn from_label(label: &str) -> Result<Self, InvalidSettings> {
        let label = label.trim();
        if label.starts_with('{') {
            let json = serde_json::from_str(label);
            let json = json.map_err(|error| InvalidSettings::one(format!("not JSON: {error}")))?;
            return Self::from_json(&json);
        }
        let neither = || InvalidSettings::one("neither JSON nor base64 of a message".to_owned());
        let bytes = STANDARD.decode(label).map_err(|_| neither())?;
        let message = DynamicMessage::decode(DESCRIPTOR.clone(), bytes.as_slice());
        message.map(Self).map_err(|_| neither())
    }

    /// This layer with `above` over it.
    #[must_use]
    pub fn under(mut self, above: &Self) -> Self {
        merge(&mut self.0, &above.0);
        self
    }

    /// The message.
    pub fn message(&self) -> ModelCanaryConfig {
        self.0.transcode_to().expect("it is that message")
    }
}

/// Lists and times are replaced as a whole.
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
