//! Servables: a model name with a version, and a SavedModel that is ready to run.

use std::{collections::BTreeMap, fmt, path::Path, sync::Arc};

use bytes::Bytes;
use outrigger_proto::{
    raw::{
        read::{Fields, Value},
        write::put_bytes,
    },
    tensorflow::{SignatureDef, TensorInfo},
};
use outrigger_run::Pace;
use prost::Message as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    batching::Batcher,
    cores::cores,
    malformed::Malformed,
    status::Status,
    tensorflow::{Endpoint, Runtime, Session, Threads},
};

/// One version of one model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServableId {
    /// The model.
    pub name: String,
    /// Its version: the number in the name of its directory.
    pub version: i64,
}

impl fmt::Display for ServableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{name: {} version: {}}}", self.name, self.version)
    }
}

/// An input or output of a signature: a tensor of the graph under another name (its
/// alias).
#[derive(Debug)]
pub struct Port {
    /// Name of the tensor in the graph, for example `dense/BiasAdd:0`.
    pub name: String,
    /// Its place in the graph; `None` if the graph does not have it.
    pub endpoint: Option<Endpoint>,
}

/// A function of a model.
#[derive(Debug)]
pub struct Signature {
    /// By alias.
    pub inputs: BTreeMap<String, Port>,
    /// By alias.
    pub outputs: BTreeMap<String, Port>,
    /// Default values of inputs that may be omitted: encoded `tensorflow.TensorProto`.
    pub defaults: BTreeMap<String, Vec<u8>>,
    /// Durations of its runs.
    pub pace: Pace,
}

/// A loaded SavedModel.
#[derive(Debug)]
pub struct Servable {
    /// The session that runs it.
    pub session: Session,
    /// Its signatures by key.
    pub signatures: BTreeMap<String, Signature>,
    /// The encoded `tensorflow.serving.SignatureDefMap`, with the model's own bytes.
    pub signature_map: Bytes,
    /// Batches its requests; `None` if each request is a run of its own.
    pub batcher: Option<Batcher>,
    /// One permit per core: more concurrent runs would only take turns. Each servable has its own, so
    /// that runs without end take none from other servables.
    pub turns: Arc<Semaphore>,
}

/// The signatures of a meta graph: parsed, and in their original encoding.
type Signatures = (Vec<(String, SignatureDef)>, Bytes);

impl Servable {
    /// Loads the SavedModel in `directory`, without a batcher.
    ///
    /// # Errors
    /// TensorFlow's error; DATA_LOSS if the signatures cannot be decoded.
    pub fn load(runtime: Runtime, directory: &Path, threads: Threads) -> Result<Self, Status> {
        let (session, read) = Session::load(runtime, directory, threads, read_signatures)?;
        let (definitions, signature_map) = read.map_err(|_| {
            Status::new(tonic::Code::DataLoss, "the model's signatures are malformed")
        })?;
        let signatures = definitions
            .into_iter()
            .map(|(key, definition)| (key, Signature::resolve(&session, definition)))
            .collect();
        let turns = Arc::new(Semaphore::new(cores()));
        Ok(Self { session, signatures, signature_map, batcher: None, turns })
    }

    /// Waits for a turn to run it.
    pub async fn turn(&self) -> OwnedSemaphorePermit {
        let permit = Arc::clone(&self.turns).acquire_owned().await;
        permit.expect("the semaphore is never closed")
    }
}

impl Signature {
    fn resolve(session: &Session, definition: SignatureDef) -> Self {
        let ports = |tensors: std::collections::HashMap<String, TensorInfo>| {
            tensors.into_iter().map(|(alias, info)| (alias, Port::resolve(session, info))).collect()
        };
        let defaults = definition.defaults.into_iter();
        Self {
            inputs: ports(definition.inputs),
            outputs: ports(definition.outputs),
            defaults: defaults.map(|(alias, value)| (alias, value.encode_to_vec())).collect(),
            pace: Pace::default(),
        }
    }
}

impl Port {
    fn resolve(session: &Session, info: TensorInfo) -> Self {
        Self { endpoint: session.endpoint(&info.name), name: info.name }
    }

    /// The tensor's place in the graph.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, with TensorFlow's message, if the graph does not have it.
    pub fn endpoint(&self) -> Result<Endpoint, Status> {
        self.endpoint.ok_or_else(|| {
            Status::invalid(format!(
                "Tensor {}, specified in either feed_devices or fetch_devices was not found in the Graph",
                self.name
            ))
        })
    }
}

/// Reads the signatures of an encoded `MetaGraphDef` and skips the graph. Its field of
/// signatures has the same entries as the only field of a `SignatureDefMap`, so they are
/// copied as they are.
fn read_signatures(meta_graph: &[u8]) -> Result<Signatures, Malformed> {
    const SIGNATURE_DEF: u32 = 5;
    let mut definitions = Vec::new();
    let mut map = Vec::new();
    for field in Fields::of(meta_graph) {
        if let (SIGNATURE_DEF, Value::Bytes(entry)) = field? {
            definitions.push(read_entry(entry)?);
            put_bytes(1, entry, &mut map);
        }
    }
    Ok((definitions, map.into()))
}

fn read_entry(entry: &[u8]) -> Result<(String, SignatureDef), Malformed> {
    let mut key = String::new();
    let mut definition = SignatureDef::default();
    for field in Fields::of(entry) {
        match field? {
            (1, Value::Bytes(name)) => key = String::from_utf8_lossy(name).into_owned(),
            (2, Value::Bytes(value)) => {
                definition = SignatureDef::decode(value)?;
            }
            _ => {}
        }
    }
    Ok((key, definition))
}
