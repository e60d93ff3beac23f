//! The server and the model that are called, and the form of the requests.

use outrigger_bench::{Form, Inference, InferenceForm, Input, Servable, Target};
use outrigger_tools::ModelArgument;

use crate::exit::Exit;

/// The server and the model.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Target")]
pub(super) struct TargetArguments {
    /// The control plane: its gRPC listener, or its HTTP listener for JSON; for a form of the Open
    /// Inference Protocol any server of it
    #[arg(
        long,
        value_name = "HOST:PORT|unix:PATH",
        required_unless_present = "direct",
        requires = "model"
    )]
    server: Option<String>,
    /// The model: name, name:tag or name@sha256:digest
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// The model's tag, if it is not part of --model; the version, if another server than Outrigger
    /// is called in a form of the Open Inference Protocol
    #[arg(long, value_name = "TAG", requires = "model")]
    tag: Option<String>,
    /// The model's digest, if it is not part of --model
    #[arg(long, value_name = "DIGEST", requires = "model", conflicts_with = "tag")]
    digest: Option<String>,
    /// TensorFlow Serving: gets the tensors of the same requests, without a control
    /// plane. Settings of TLS and credentials in the environment do not apply to it
    #[arg(
        long,
        value_name = "HOST:PORT|unix:PATH",
        conflicts_with_all = ["server", "model"],
        requires = "servable"
    )]
    direct: Option<String>,
    /// The servable to call with --direct
    #[arg(long, value_name = "NAME", requires = "direct")]
    servable: Option<String>,
    /// The servable's version [default: the latest at the start of the run]
    #[arg(long, value_name = "N", requires = "direct")]
    version: Option<i64>,
    /// The servable's signature [default: that of metadata.json]
    #[arg(long, value_name = "NAME", requires = "direct")]
    signature: Option<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum FormArgument {
    /// gRPC, with a map of features per treatment
    Kv,
    /// gRPC, with treatments as columns
    Columnar,
    /// HTTP, JSON
    Json,
    /// Open Inference Protocol over gRPC: tensors, raw contents
    OipGrpc,
    /// Open Inference Protocol over HTTP: binary tensors
    OipBinary,
    /// Open Inference Protocol over HTTP: tensors as JSON
    OipJson,
}

impl TargetArguments {
    /// The address, and the model or servable there, which gets requests in this form and with
    /// these inputs.
    pub(super) fn read(
        self,
        form: Option<FormArgument>,
        inputs: &[Input],
    ) -> Result<(String, Target), Exit> {
        let Self { server, model, tag, digest, direct, servable, version, signature } = self;
        match (server.zip(model), direct.zip(servable)) {
            (Some((server, model)), _) => {
                let model = versioned(model, tag, digest)?;
                Ok((server, target(&model, form, inputs)?))
            }
            (None, Some((direct, name))) => {
                Ok((direct, Target::Servable(Servable { name, version, signature })))
            }
            (None, None) => Err(Exit::usage("give --server and --model, or --direct")),
        }
    }
}

/// Adds a version that was given in an option of its own to the model.
fn versioned(model: String, tag: Option<String>, digest: Option<String>) -> Result<String, Exit> {
    match (tag, digest) {
        (None, None) => Ok(model),
        _ if split(&model).1.is_some() => Err(Exit::usage("--model names a version already")),
        (Some(tag), _) => Ok(format!("{model}:{tag}")),
        (None, Some(digest)) => Ok(format!("{model}@{digest}")),
    }
}

/// A model's name, and its version if there is one.
fn split(model: &str) -> (&str, Option<&str>) {
    let parts = model.split_once('@').or_else(|| model.split_once(':'));
    parts.map_or((model, None), |(name, version)| (name, Some(version)))
}

/// The model, for requests in this form. Servers of the Open Inference Protocol may have other names
/// of models and versions than Outrigger.
fn target(model: &str, form: Option<FormArgument>, inputs: &[Input]) -> Result<Target, Exit> {
    let of_control_plane = |form| {
        let model: ModelArgument = model.parse().map_err(Exit::usage)?;
        Ok(Target::Model { model: model.into(), form })
    };
    let of_inference = |form| {
        let (name, version) = split(model);
        let (model, version) = (name.to_owned(), version.map(str::to_owned));
        Ok(Target::Inference(Inference { model, version, form, inputs: inputs.to_vec() }))
    };
    match form {
        None => of_control_plane(None),
        Some(FormArgument::Kv) => of_control_plane(Some(Form::KeyValue)),
        Some(FormArgument::Columnar) => of_control_plane(Some(Form::Columnar)),
        Some(FormArgument::Json) => of_control_plane(Some(Form::Json)),
        Some(FormArgument::OipGrpc) => of_inference(InferenceForm::Grpc),
        Some(FormArgument::OipBinary) => of_inference(InferenceForm::Binary),
        Some(FormArgument::OipJson) => of_inference(InferenceForm::Json),
    }
}
