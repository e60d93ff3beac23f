//! The package of a batch job, whose model the job scores with itself.

use std::{num::NonZeroU32, path::PathBuf, sync::Arc};

use outrigger_batch::{Environment, Job, Model, Package};
use outrigger_tools::{batch::Engines, registry::Progress};

use crate::{exit::Exit, frameworks, package::Registry};

/// A package in place of hosts.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "A package in place of hosts")]
pub(super) struct PackageArguments {
    /// HOST/REPOSITORY[:TAG][@DIGEST], oci:DIR[:TAG][@DIGEST], or a directory: the job scores with its
    /// model itself.
    #[arg(long, value_name = "REF|DIR", conflicts_with = "host")]
    package: Option<String>,
    /// tensorflow_model_server to use instead of the local engine.
    #[arg(long, value_name = "BINARY", env = "OUTRIGGER_ENGINE")]
    engine: Option<PathBuf>,
    /// The processes of the engine, unless it runs in this one [default: 1].
    #[arg(long, value_name = "N")]
    instances: Option<NonZeroU32>,
    #[command(flatten)]
    registry: Registry,
}

impl PackageArguments {
    /// Replaces the settings of the job that are given. Returns the surroundings of the job.
    pub(super) fn apply(self, job: &mut Job) -> Result<Environment, Exit> {
        let Self { package, engine, instances, registry } = self;
        if let Some(source) = package {
            job.model = of_source(&source, &job.model);
            job.hosts.0.clear();
        }
        let Some(package) = &mut job.model.package else {
            return match instances {
                None => Ok(Environment::default()),
                Some(_) => Err(Exit::usage("--instances is for a package")),
            };
        };
        package.engine = engine.or(package.engine.take());
        package.instances = instances.unwrap_or(package.instances);
        let engines = Engines {
            client: registry.client()?,
            program: frameworks::engine_program(package.engine.clone())?,
            frameworks: frameworks::KNOWN.to_vec(),
            progress: Progress::default(),
        };
        Ok(Environment { engines: Some(Arc::new(engines)), ..Environment::default() })
    }
}

/// The model of a package, with the other settings of `model`.
fn of_source(source: &str, model: &Model) -> Model {
    let package = match &model.package {
        None => Package::new(source),
        Some(package) => Package { source: source.to_owned(), ..package.clone() },
    };
    let of_package = Model::packaged(package);
    let name = if model.name.is_empty() { of_package.name } else { model.name.clone() };
    Model { name, version: model.version.clone(), ..of_package }
}
