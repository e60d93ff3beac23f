//! Packages of models that run on a server of the protocol.

use std::{fs, io, path::Path, sync::Arc};

use outrigger_core::{
    DType, ElementType, Failure, Interface, PackageLayout, Reason, Shape, TensorSpec, without_mark,
};
use outrigger_run::{Framework, PackagedModel};
use serde::Deserialize;

use crate::{names::CONFIGURATION, requirements};

const FILE: &str = "metadata.json";
/// The most bytes of metadata.json that are read here; the store has a limit of its own below it.
const MAX_FILE: u64 = 64 << 20;
/// The only signature: the protocol has none.
const SIGNATURE: &str = "serving_default";
/// The directory of the models that a package carries, relative to its own: each is a directory as
/// the servers have it in their repository.
pub(crate) const MODELS: &str = "oip";
/// The longest name of a carried model, so that a longer one still names a file.
const LONGEST: usize = 128;
/// The most models that a package carries.
const MOST: usize = 64;

/// The framework of the models that run on a server of the protocol. metadata.json is the model's
/// file too.
pub const OIP: Framework = Framework {
    name: "oip",
    layout: PackageLayout {
        directory: "",
        files: &[FILE],
        parts: &[],
        max_file: MAX_FILE,
        versioned: false,
    },
    reading: |size| 8 * size,
    interface,
    others: None,
    describer: None,
    remark: Some(requirements::remark),
};

/// The parts of a package that concern the server. The other crates check the rest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Package {
    /// The model that is run.
    pub(crate) remote: Remote,
    inputs: Vec<Input>,
    pub(crate) outputs: Vec<Output>,
    /// The models that the package carries, in the order in which they are loaded: the one that is
    /// run comes last. Without any, the servers have the model by themselves.
    #[serde(skip)]
    pub(crate) carried: Vec<Arc<str>>,
    /// True if a server may run its code in one process with that of others: not if Triton, which has
    /// a process for each instance, runs all that it carries.
    #[serde(skip)]
    pub(crate) shares_process: bool,
}

/// The model on the server: the key `remote` of metadata.json.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Remote {
    /// The name.
    pub(crate) model: Arc<str>,
    /// The version; `None`: the server chooses it.
    #[serde(default)]
    pub(crate) version: Option<Arc<str>>,
    /// True if it takes one row in a request, in tensors without a dimension for rows.
    #[serde(default)]
    pub(crate) row_by_row: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Input {
    tensor: Arc<str>,
    dtype: DType,
    #[serde(default)]
    lengths: Option<Arc<str>>,
    #[serde(default)]
    weights: Option<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Output {
    pub(crate) tensor: Arc<str>,
    #[serde(default = "one")]
    width: i64,
}

const fn one() -> i64 {
    1
}

impl Output {
    /// True if a server's description of its shape agrees. One that does not begin with any number of
    /// rows says nothing about a row.
    pub(crate) fn fits(&self, shape: &[i64]) -> bool {
        match shape {
            [-1] => self.width == 1,
            [-1, .., width] => [-1, self.width].contains(width),
            _ => false,
        }
    }
}

impl Package {
    /// Reads the package in `directory`. Blocks.
    ///
    /// # Errors
    /// IMAGE_INVALID if the package is at fault.
    pub(crate) fn read(directory: &Path) -> Result<Self, Failure> {
        let text = fs::read(directory.join(FILE)).map_err(|error| invalid(error.to_string()))?;
        let read = serde_json::from_slice(without_mark(&text));
        let mut package: Self = read.map_err(|error| invalid(format!("{FILE}: {error}")))?;
        let models = directory.join(MODELS);
        package.carried = carried(&models, &package.remote.model)?;
        let is_of_triton = |name: &Arc<str>| models.join(&**name).join(CONFIGURATION).is_file();
        package.shares_process =
            package.carried.is_empty() || !package.carried.iter().all(is_of_triton);
        Ok(package)
    }

    /// The tensors that metadata.json names. It says nothing about the sizes, nor about the types of
    /// outputs: the server knows them.
    pub(crate) fn interface(&self) -> Interface {
        let spec = |name: &Arc<str>, dtype: DType| {
            TensorSpec::new(Arc::clone(name), ElementType::Known(dtype), Shape::Any)
        };
        let inputs = self.inputs.iter().flat_map(|input| {
            let lengths = input.lengths.iter().map(|name| spec(name, DType::Int64));
            let weights = input.weights.iter().map(|name| spec(name, DType::Float32));
            [spec(&input.tensor, input.dtype)].into_iter().chain(lengths).chain(weights)
        });
        let outputs = self.outputs.iter().map(|output| spec(&output.tensor, DType::Float32));
        Interface::new(inputs.collect(), outputs.collect())
    }
}

/// The names of the models in `directory`, with `run` at the end.
fn carried(directory: &Path, run: &Arc<str>) -> Result<Vec<Arc<str>>, Failure> {
    let failed = |error: io::Error| invalid(format!("{MODELS}: {error}"));
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut names: Vec<Arc<str>> = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_str().filter(|name| is_name(name) && directory.join(name).is_dir());
        names.push(name.ok_or_else(|| invalid(UNNAMED.to_owned()))?.into());
    }
    if names.len() > MOST {
        return Err(invalid(format!("{MODELS} has {} models, more than {MOST}", names.len())));
    }
    if !names.contains(run) {
        return Err(invalid(format!("remote.model: the package has no directory {MODELS}/{run}")));
    }
    names.sort_unstable_by(|a, b| (a == run, a).cmp(&(b == run, b)));
    Ok(names)
}

const UNNAMED: &str = "oip has an entry that is no directory of a model: its name has at most 128 \
    letters, digits, '-', '_' and '.', and does not begin with a '.'";

fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=LONGEST).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
}

fn interface(model: &PackagedModel, signature: &str) -> Result<Interface, Failure> {
    let directory = model.without_uplift()?;
    match signature {
        SIGNATURE => Ok(Package::read(directory)?.interface()),
        _ => Err(invalid(format!("a model of the framework oip has no signature {signature:?}"))),
    }
}

pub(crate) fn invalid(message: String) -> Failure {
    Failure::new(Reason::ImageInvalid, message)
}

#[cfg(test)]
mod tests;
