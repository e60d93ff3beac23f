//! `outrigger dev`: an engine and a control plane on this machine, and packages that are served as
//! they change.

mod log;

use std::{
    collections::HashSet,
    convert::Infallible,
    path::{Path, PathBuf},
};

use outrigger_server::{Addresses, Config, Running, config::Source, start_reloading};
use outrigger_tools::{
    Access,
    dev::{DevEngine, Target, Watched, WatchedArgument, follow},
    registry,
};
use tokio::{runtime::Builder, sync::oneshot};

use crate::{
    exit::Exit,
    frameworks,
    serve::{self, assignment},
    signals::Signals,
};

/// Runs an engine and a control plane on this machine, and serves packages as they change.
///
/// DIR mirrors /data of an image, as for `outrigger push`. A change of its files is loaded as a
/// pushed tag would be, once they have stayed the same for half a second: the version before it
/// answers until the new one is ready, and if the package is refused. Requests name the model by
/// the name of the directory, or by NAME. Ctrl-C ends everything.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The listeners are those of `outrigger serve`, on loopback; port 0 takes any free port. Images, store
and sockets are in a temporary directory (TMPDIR), which is deleted at the end.

Example:
  outrigger dev churn/
  outrigger predict --model churn request.json")]
pub(crate) struct Arguments {
    /// Directories to watch, each with the package of one model.
    #[arg(value_name = "[NAME=]DIR")]
    watched: Vec<WatchedArgument>,

    /// tensorflow_model_server to use instead of the local engine.
    #[arg(long, value_name = "BINARY", env = "OUTRIGGER_ENGINE")]
    engine: Option<PathBuf>,

    /// Start no engine: for models that the control plane runs itself, such as trees.
    #[arg(long, conflicts_with_all = ["engine", "tensorflow"])]
    no_engine: bool,

    /// Directory of libtensorflow for the local engine, as for `outrigger engine`.
    #[arg(long, value_name = "DIR", conflicts_with = "engine")]
    tensorflow: Option<PathBuf>,

    /// images.repository: source of models that are not watched [default: an image layout
    /// directory, whose path is logged]
    #[arg(long, value_name = "REFERENCE")]
    repository: Option<String>,

    /// The configuration file of the control plane, YAML.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Sets one key of the configuration, for example server.grpc=127.0.0.1:0; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
}

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<(), Exit> {
    let Arguments { watched, engine, no_engine, tensorflow, repository, config, set } = arguments;
    check_names(&watched)?;
    let directory = tempfile::Builder::new().prefix("outrigger-dev-").tempdir();
    let directory = directory.map_err(|error| Exit::Failed(format!("no directory: {error}")))?;
    // A copy of a package that is still written at the end is deleted with it.
    tempfile::env::override_temp_dir(directory.path()).ok();
    let mut program = frameworks::engine_program(engine)?;
    program.arguments.extend(tensorflow.map(|path| format!("--tensorflow={}", path.display())));
    let engine = || DevEngine::new(program, directory.path().join("engine"));
    let engine = (!no_engine).then(engine).transpose()?;
    let images = Images(directory.path().join("images"));
    // A configuration file has a repository, or wants none.
    let repository = repository.or_else(|| config.is_none().then(|| images.repository()));
    let mut overrides = settings(directory.path(), engine.as_ref());
    overrides.extend(repository.map(|it| ("images.repository".to_owned(), it)));
    if !watched.is_empty() {
        overrides.push(("models".to_owned(), images.models(&watched)));
    }
    overrides.extend(set);
    let source = serve::open(config, overrides)?;
    let loaded = source.load().map_err(serve::invalid)?;
    serve::report_ignored(&loaded);
    log::start(&loaded.config.log.level)?;
    if loaded.config.images.repository.as_ref() == Some(&images.repository()) {
        tracing::info!("other models are read from {}/NAME", images.repository());
    }
    serve::set_up_allocator(&loaded.config)?;
    Dev { engine, images, watched }.run(loaded.config, source)
}

fn check_names(watched: &[WatchedArgument]) -> Result<(), Exit> {
    let mut names = HashSet::new();
    match watched.iter().find(|watched| !names.insert(&watched.name)) {
        Some(twice) => Err(Exit::Usage(format!("two directories for the model {}", twice.name))),
        None => Ok(()),
    }
}

/// The settings of the control plane that differ from the defaults of `outrigger serve`.
fn settings(directory: &Path, engine: Option<&DevEngine>) -> Vec<(String, String)> {
    let store = directory.join("store").display().to_string();
    let engine = match engine {
        Some(engine) => ("engine.endpoint", engine.endpoint()),
        // Engines in the process need no entry.
        None => ("engines", "{}".to_owned()),
    };
    let settings = [
        ("server.grpc", "127.0.0.1:9000"),
        ("server.http", "127.0.0.1:9080"),
        ("server.health", "127.0.0.1:9902"),
        ("server.admin", "127.0.0.1:9901"),
        ("server.shutdown_delay", "0s"),
        // This process itself calls these two.
        ("tls.health", "plain"),
        ("tls.admin", "plain"),
        (engine.0, &engine.1),
        ("store.path", &store),
        // Models stay loaded without requests.
        ("store.idle_ttl", "7d"),
        ("images.poll_interval", "1s"),
    ];
    settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// The directory of the image layout directories, one for each model.
struct Images(PathBuf);

impl Images {
    fn repository(&self) -> String {
        format!("oci:{}", self.0.display())
    }

    fn of(&self, watched: &WatchedArgument) -> String {
        format!("{}/{}", self.repository(), watched.name)
    }

    /// The setting `models`. JSON is YAML.
    fn models(&self, watched: &[WatchedArgument]) -> String {
        let model = |watched: &WatchedArgument| serde_json::json!({"name": watched.name.as_str(), "image": self.of(watched)});
        serde_json::Value::from_iter(watched.iter().map(model)).to_string()
    }
}

/// The parts of a run.
struct Dev {
    engine: Option<DevEngine>,
    images: Images,
    watched: Vec<WatchedArgument>,
}

impl Dev {
    fn run(self, config: Config, source: Source) -> Result<(), Exit> {
        let access = Access {
            token_file: config.auth.operator_file().map(|file| file.path),
            ..Access::default()
        };
        let tag = config.images.default_tag.clone();
        let max_size = config.store.max_unpacked.0;
        // The engine is started by this thread, with which it ends.
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Exit::failed)?;
        // The handlers are installed before the start, so that a signal during it is not lost.
        let mut signals = runtime.block_on(async { Signals::listen() })?;
        let running = start_reloading(config, source).map_err(serve::failed)?;
        let target = Target {
            admin: running.addresses().admin.to_string(),
            access,
            client: registry::client(Vec::new(), None)?,
            tag,
            frameworks: frameworks::KNOWN.clone(),
            max_size,
        };
        let stopped = runtime.block_on(self.until_stopped(&running, &target, &mut signals));
        // A copy of a package is not waited for.
        runtime.shutdown_background();
        match stopped? {
            Stopped::InOrder => running.join().map_err(serve::failed),
            Stopped::AtOnce => Err(Exit::Interrupted),
        }
    }

    /// Runs until a signal, or until a part has ended; then stops the control plane, and the engine
    /// after it.
    async fn until_stopped(
        self,
        running: &Running,
        target: &Target,
        signals: &mut Signals,
    ) -> Result<Stopped, Exit> {
        let Self { engine, images, watched } = self;
        let (stop, stopped) = oneshot::channel::<Infallible>();
        let mut engine = tokio::spawn(async move {
            // Also when the sender is dropped.
            let stopped = async { _ = stopped.await };
            match engine {
                Some(engine) => engine.run(stopped, log::engine_line).await,
                None => {
                    stopped.await;
                    Ok(())
                }
            }
        });
        let serving = serve_watched(&images, watched, target, running.addresses());
        let outcome = tokio::select! {
            () = signals.next() => Ok(()),
            () = running.ended() => Ok(()),
            ended = &mut engine => ended.map_err(Exit::failed)?.map_err(Exit::from),
            failed = serving => failed.map(|never| match never {}),
        };
        tracing::info!("stops");
        running.stop();
        tokio::select! {
            () = running.ended() => {}
            () = signals.next() => return Ok(Stopped::AtOnce),
        }
        drop(stop);
        if !engine.is_finished() {
            tokio::select! {
                ended = engine => ended.map_err(Exit::failed)??,
                () = signals.next() => return Ok(Stopped::AtOnce),
            }
        }
        outcome.map(|()| Stopped::InOrder)
    }
}

/// The way in which a run was stopped.
enum Stopped {
    /// Requests in progress were answered.
    InOrder,
    /// A second signal came before that.
    AtOnce,
}

/// Has the packages of the directories served as they change.
async fn serve_watched(
    images: &Images,
    watched: Vec<WatchedArgument>,
    target: &Target,
    addresses: Addresses,
) -> Result<Infallible, Exit> {
    let mut directories = Vec::new();
    for watched in watched {
        let image = images.of(&watched).parse().map_err(Exit::usage)?;
        directories.push(Watched::new(target, watched, image));
    }
    let Addresses { grpc, http, health, admin, .. } = addresses;
    let ready = || {
        tracing::info!(
            "ready: gRPC {grpc}, HTTP http://{http}, admin {admin} with http://{admin}/ui, \
             health http://{health}/readyz"
        );
    };
    Ok(follow(&mut directories, health, ready).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_one_directory() {
        let watched = |name: &str| WatchedArgument {
            name: name.parse().expect("a name"),
            directory: PathBuf::from("/models"),
        };
        assert!(check_names(&[watched("a"), watched("b")]).is_ok());
        assert!(matches!(check_names(&[watched("a"), watched("a")]), Err(Exit::Usage(_))));
    }
}
