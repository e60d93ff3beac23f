//! Metadata, readiness and the index of models, as JSON documents.
//!
//! Servers write them with all fields that they have; readers take documents in which fields are
//! null or missing, as known servers write them.

use outrigger_core::{ElementType, Interface, Shape, TensorSpec};
use serde::{Deserialize, Deserializer, Serialize};

use crate::DataType;

/// The answer to the questions for liveness and readiness. Clients read one key or the other, so
/// both have the same value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Health {
    live: bool,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
}

impl Health {
    /// The answer that the server is live, or ready, or the reason why it is not.
    pub const fn new(is_well: bool, error: Option<&'static str>) -> Self {
        Self { live: is_well, ready: is_well, error }
    }
}

/// The answer to the question whether a model is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelReady {
    /// The model.
    pub name: String,
    /// True if it can be called.
    pub ready: bool,
    /// The reason why it cannot be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A server and its extensions of the protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerMetadata {
    /// The name of the product.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Its version.
    #[serde(deserialize_with = "or_default")]
    pub version: String,
    /// The names of the extensions.
    #[serde(deserialize_with = "or_default")]
    pub extensions: Vec<String>,
}

/// A model and its tensors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelMetadata {
    /// The name that calls use.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The versions that can be called.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<String>,
    /// The framework.
    #[serde(deserialize_with = "or_default")]
    pub platform: String,
    /// The inputs. Some servers leave them out.
    #[serde(deserialize_with = "or_default")]
    pub inputs: Vec<TensorMetadata>,
    /// The outputs. Some servers leave them out.
    #[serde(deserialize_with = "or_default")]
    pub outputs: Vec<TensorMetadata>,
}

/// A tensor that a model takes or returns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TensorMetadata {
    /// The name that calls use.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The name of the datatype; that of the model, if the protocol has no such type.
    #[serde(deserialize_with = "or_default")]
    pub datatype: String,
    /// The sizes, outermost first; -1 for any size.
    #[serde(deserialize_with = "or_default")]
    pub shape: Vec<i64>,
}

/// A model in the index of a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IndexEntry {
    /// The name that calls use.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The version, if the server has versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// One of the names of [`State`]; empty if the model was never loaded.
    #[serde(deserialize_with = "or_default")]
    pub state: String,
    /// The reason for the state, for people.
    #[serde(deserialize_with = "or_default")]
    pub reason: String,
}

/// The question for the index of a repository.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IndexRequest {
    /// True if only models that can be called are asked for.
    #[serde(deserialize_with = "or_default")]
    pub ready: bool,
}

/// The state of a model in the index of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum State {
    Ready,
    Unavailable,
    Loading,
    Unloading,
}

impl State {
    /// The protocol's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "READY",
            Self::Unavailable => "UNAVAILABLE",
            Self::Loading => "LOADING",
            Self::Unloading => "UNLOADING",
        }
    }
}

impl From<&TensorSpec> for TensorMetadata {
    fn from(spec: &TensorSpec) -> Self {
        let datatype = match &spec.dtype {
            ElementType::Known(dtype) => DataType::from(*dtype).as_str().to_owned(),
            other => other.to_string(),
        };
        let shape = match &spec.shape {
            Shape::Any => vec![-1],
            Shape::Sizes(sizes) => {
                let size = |size: &Option<u64>| size.and_then(|size| i64::try_from(size).ok());
                sizes.iter().map(|it| size(it).unwrap_or(-1)).collect()
            }
        };
        Self { name: spec.name.to_string(), datatype, shape }
    }
}

impl ModelMetadata {
    /// Describes a model with these tensors.
    pub fn new(
        name: String,
        platform: String,
        versions: Vec<String>,
        interface: &Interface,
    ) -> Self {
        let tensors = |specs: &[TensorSpec]| specs.iter().map(Into::into).collect();
        let (inputs, outputs) = (tensors(&interface.inputs), tensors(&interface.outputs));
        Self { name, versions, platform, inputs, outputs }
    }

    /// Gives the tensors of a model that takes one row in a request a dimension for rows.
    pub fn add_rows(&mut self) {
        let tensors = self.inputs.iter_mut().chain(&mut self.outputs);
        tensors.for_each(|tensor| tensor.shape.insert(0, -1));
    }
}

/// Reads a field that may be null.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use outrigger_core::DType;
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_that_servers_leave_out_are_empty() {
        let read = |value| serde_json::from_value::<ModelMetadata>(value).expect("metadata");
        let empty = ModelMetadata { name: "m".to_owned(), ..ModelMetadata::default() };
        assert_eq!(read(json!({"name": "m"})), empty);
        let nulls = json!({
            "name": "m", "versions": null, "platform": null, "inputs": null, "outputs": [],
            "parameters": {},
        });
        assert_eq!(read(nulls), empty);
        let server = json!({"name": "mlserver", "version": "1.7.1", "extensions": []});
        assert!(serde_json::from_value::<ServerMetadata>(server).is_ok());
        let entry = json!({"name": "m", "version": null, "state": null, "reason": null});
        let entry: IndexEntry = serde_json::from_value(entry).expect("an entry");
        assert_eq!(entry, IndexEntry { name: "m".to_owned(), ..IndexEntry::default() });
    }

    #[test]
    fn tensors_are_described_as_the_model_declares_them() {
        let spec = |name: &str, dtype: ElementType, shape| TensorSpec::new(name, dtype, shape);
        let inputs = vec![spec("x", DType::Float32.into(), Shape::of(&[-1, 2]))];
        let outputs = vec![spec("y", ElementType::Unsupported("uint8".into()), Shape::Any)];
        let interface = Interface::new(inputs, outputs);
        let metadata =
            ModelMetadata::new("m".to_owned(), "tensorflow".to_owned(), Vec::new(), &interface);
        let expected = json!({
            "name": "m",
            "platform": "tensorflow",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
            "outputs": [{"name": "y", "datatype": "uint8", "shape": [-1]}],
        });
        assert_eq!(serde_json::to_value(&metadata).expect("JSON"), expected);
    }
}
