//! A scripted engine in another process, with a protocol and a package layout of its own: the
//! counterpart of [`crate::engine`] for everything that must hold for any engine elsewhere.
//!
//! [`Server`] stands for the other process, and obeys the test. [`Engine`] is its client, and
//! what the control plane is given. Files are not shared: a model is sent when it is loaded.

mod engine;
mod server;

use std::{fs, path::Path};

use bytes::Bytes;
use outrigger_core::{
    Content, DType, Failure, Interface, PackageLayout, Reason, ServableId, Shape, Tensor,
    TensorSpec,
};
use outrigger_run::{Framework, PackagedModel};
use serde::{Deserialize, Serialize};

pub use self::{
    engine::Engine,
    server::{Mode, Server},
};

const FILE: &str = "scripted.json";
const SIGNATURE: &str = "serving_default";

/// The framework of the models that [`Server`] runs.
pub const SCRIPTED: Framework = Framework {
    name: "scripted",
    layout: PackageLayout {
        directory: "scripted",
        files: &[FILE],
        parts: &[],
        max_file: 1 << 20,
        versioned: false,
    },
    reading: |size| size,
    interface,
    others: None,
    describer: None,
    remark: None,
};

/// A model, as its package's file `/data/scripted/scripted.json` has it. The score of a treatment
/// is the sum of its features and `bias`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The number of the user's features.
    pub user: u64,
    /// The number of a treatment's features.
    pub treatment: u64,
    /// The score of a treatment whose features are all zero.
    pub bias: f32,
}

/// A request of the protocol. Each has a connection of its own: a JSON document in each direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Asks for the loaded versions.
    List,
    /// Loads a version.
    Load(ServableId, Model),
    /// Unloads a version.
    Unload(ServableId),
    /// Asks for the model that is loaded as this version.
    Describe(ServableId),
    /// Runs a version.
    Run(ServableId, Vec<Values>),
}

/// An answer of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Reply {
    Loaded { start: u64, versions: Vec<ServableId> },
    Done,
    Model(Model),
    Outputs(Vec<Values>),
    Failed(String),
    Refused(String),
    NotServed(ServableId),
    NotReady,
}

/// A tensor of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Values {
    name: String,
    dtype: DType,
    shape: Vec<i64>,
    bytes: Vec<u8>,
}

fn interface(model: &PackagedModel, signature: &str) -> Result<Interface, Failure> {
    let directory = model.without_uplift()?;
    match signature {
        SIGNATURE => Ok(read(directory)?.interface()),
        _ => Err(invalid(format!("a scripted model has no signature {signature:?}"))),
    }
}

fn read(directory: &Path) -> Result<Model, Failure> {
    let text = fs::read(directory.join(FILE)).map_err(|error| invalid(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| invalid(format!("{FILE}: {error}")))
}

fn invalid(message: String) -> Failure {
    Failure::new(Reason::ImageInvalid, message)
}

impl Model {
    fn interface(&self) -> Interface {
        let spec = |name: &str, dtype: DType, sizes: &[Option<u64>]| {
            TensorSpec::new(name, dtype.into(), Shape::Sizes(sizes.to_vec()))
        };
        let inputs = vec![
            spec("user", DType::Float32, &[None, Some(self.user)]),
            spec("treatment", DType::Float32, &[None, None, Some(self.treatment)]),
            spec("treatment_counts", DType::Int32, &[None]),
        ];
        Interface::new(inputs, vec![spec("scores", DType::Float32, &[None, None])])
    }
}

impl From<Tensor> for Values {
    fn from(Tensor { name, dtype, shape, content }: Tensor) -> Self {
        let bytes = match content {
            Content::Bytes(bytes) => bytes.to_vec(),
            Content::Strings(_) => Vec::new(),
        };
        Self { name: name.to_string(), dtype, shape, bytes }
    }
}

impl From<Values> for Tensor {
    fn from(Values { name, dtype, shape, bytes }: Values) -> Self {
        Self { name: name.into(), dtype, shape, content: Content::Bytes(Bytes::from(bytes)) }
    }
}
