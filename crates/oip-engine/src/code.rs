//! The code of a version, apart from that of others in one process.
//!
//! Triton runs each instance of a model of its Python backend in a process of its own. A process of
//! MLServer has all models, and keeps their modules by name. So the settings of a published model
//! name a module that gives the version's modules names of their own.

use std::{fs, path::Path};

use outrigger_core::{Digest, Failure};
use serde_json::{Map, Value};

use crate::repository::{failed, read, write};

/// MLServer's settings of a model.
pub(crate) const SETTINGS: &str = "model-settings.json";
const IMPLEMENTATION: &str = "implementation";
/// The module that gives a version's modules names of their own.
const OWN: &str = include_str!("code/own.py");

/// Gives the modules in `directory` names that only the model called `published` has, if MLServer
/// runs it and its class is one of theirs.
pub(crate) fn separate(directory: &Path, published: &str) -> Result<(), Failure> {
    let file = directory.join(SETTINGS);
    let Some(text) = read(&file)? else { return Ok(()) };
    // The names in it were replaced, so it is valid.
    let mut settings: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
    let class = settings.get(IMPLEMENTATION).and_then(Value::as_str);
    let Some(class) = class.map(str::to_owned) else { return Ok(()) };
    let first = class.split(['.', ':']).next();
    let entries = fs::read_dir(directory).map_err(|error| failed(directory, error))?;
    let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    if !names.any(|name| name.split('.').next() == first) {
        return Ok(());
    }
    let module = format!("outrigger_{}", Digest::of(published.as_bytes()).hex());
    let code = format!("IMPLEMENTATION = {}\n\n{OWN}", Value::from(class));
    write(&directory.join(format!("{module}.py")), code.as_bytes())?;
    settings.insert(IMPLEMENTATION.to_owned(), format!("{module}.OutriggerModel").into());
    write(&file, Value::from(settings).to_string().as_bytes())
}
