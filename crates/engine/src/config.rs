//! Reads files in protobuf's text format: `ModelServerConfig`, `BatchingParameters`.

mod batching;
mod text;

#[cfg(test)]
mod tests;

use std::{fs, io, path::Path};

use outrigger_proto::tensorflow::serving::{
    LoggingConfig, ModelConfig, ModelConfigList, ModelServerConfig, ModelType,
    ServableVersionPolicy, model_server_config,
    servable_version_policy::{All, Latest, PolicyChoice, Specific},
};

use crate::batching::Parameters;
use text::{Field, Message};

/// A configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The file is not this message in text format.
    #[error("{path} is not a text-format {wanted}: line {line}: {message}")]
    Parse {
        /// The file.
        path: String,
        /// The message's name.
        wanted: &'static str,
        /// The line, counted from one.
        line: usize,
        /// The syntax error or the unknown field.
        message: String,
    },
}

/// An error and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Problem {
    line: usize,
    message: String,
}

type Result<T> = std::result::Result<T, Problem>;

/// Reads a configuration file.
///
/// # Errors
/// If it cannot be read or parsed.
pub fn read(path: &Path) -> std::result::Result<ModelServerConfig, ConfigError> {
    read_as("ModelServerConfig", path, parse)
}

/// Reads a file of batching parameters.
///
/// # Errors
/// If it cannot be read or parsed.
pub fn read_batching(path: &Path) -> std::result::Result<Parameters, ConfigError> {
    read_as(batching::NAME, path, batching::parse)
}

fn read_as<T>(
    wanted: &'static str,
    path: &Path,
    parse: fn(&str) -> Result<T>,
) -> std::result::Result<T, ConfigError> {
    let shown = || path.display().to_string();
    let text =
        fs::read_to_string(path).map_err(|source| ConfigError::Read { path: shown(), source })?;
    parse(&text).map_err(|Problem { line, message }| ConfigError::Parse {
        path: shown(),
        wanted,
        line,
        message,
    })
}

fn parse(text: &str) -> Result<ModelServerConfig> {
    let mut config = ModelServerConfig::default();
    for field in text::parse(text)? {
        match field.name.as_str() {
            "model_config_list" => {
                let list = model_config_list(field.message()?)?;
                let list = model_server_config::Config::ModelConfigList(list);
                config.config = Some(list);
            }
            _ => return Err(field.unknown("ModelServerConfig")),
        }
    }
    Ok(config)
}

fn model_config_list(message: &Message) -> Result<ModelConfigList> {
    let mut list = ModelConfigList::default();
    for field in message {
        match field.name.as_str() {
            "config" => list.config.push(model_config(field.message()?)?),
            _ => return Err(field.unknown("ModelConfigList")),
        }
    }
    Ok(list)
}

fn model_config(message: &Message) -> Result<ModelConfig> {
    let mut config = ModelConfig::default();
    for field in message {
        match field.name.as_str() {
            "name" => config.name = field.string()?,
            "base_path" => config.base_path = field.string()?,
            "model_type" => config.model_type = model_type(field)?,
            "model_platform" => config.model_platform = field.string()?,
            "logging_config" => {
                field.message()?;
                config.logging_config = Some(LoggingConfig {});
            }
            "model_version_policy" => {
                config.model_version_policy = Some(version_policy(field.message()?)?);
            }
            "version_labels" => {
                let (label, version) = label(field.message()?)?;
                config.version_labels.insert(label, version);
            }
            _ => return Err(field.unknown("ModelConfig")),
        }
    }
    Ok(config)
}

fn model_type(field: &Field) -> Result<i32> {
    match field.word().and_then(ModelType::from_str_name) {
        Some(named) => Ok(named.into()),
        None => field.number(),
    }
}

fn version_policy(message: &Message) -> Result<ServableVersionPolicy> {
    let mut policy = ServableVersionPolicy::default();
    for field in message {
        let choice = match field.name.as_str() {
            "latest" => PolicyChoice::Latest(latest(field.message()?)?),
            "all" => {
                if let Some(inner) = field.message()?.first() {
                    return Err(inner.unknown("All"));
                }
                PolicyChoice::All(All {})
            }
            "specific" => PolicyChoice::Specific(specific(field.message()?)?),
            _ => return Err(field.unknown("ServableVersionPolicy")),
        };
        policy.policy_choice = Some(choice);
    }
    Ok(policy)
}

fn latest(message: &Message) -> Result<Latest> {
    let mut latest = Latest::default();
    for field in message {
        match field.name.as_str() {
            "num_versions" => latest.num_versions = field.number()?,
            _ => return Err(field.unknown("Latest")),
        }
    }
    Ok(latest)
}

fn specific(message: &Message) -> Result<Specific> {
    let mut specific = Specific::default();
    for field in message {
        match field.name.as_str() {
            "versions" => specific.versions.push(field.number()?),
            _ => return Err(field.unknown("Specific")),
        }
    }
    Ok(specific)
}

fn label(message: &[Field]) -> Result<(String, i64)> {
    let mut entry = (String::new(), 0);
    for field in message {
        match field.name.as_str() {
            "key" => entry.0 = field.string()?,
            "value" => entry.1 = field.number()?,
            _ => return Err(field.unknown("version_labels")),
        }
    }
    Ok(entry)
}
