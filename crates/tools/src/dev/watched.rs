//! A directory whose package is served under a model's name.

use std::{
    convert::Infallible,
    future::pending,
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use futures::future::join_all;
use outrigger_core::{Digest, InvalidName, ModelName, Tag};
use outrigger_oci::{Client, Reference};
use outrigger_run::Framework;
use tokio::time::sleep;

use super::{publish::Published, state::State};
use crate::{Access, Error};

/// The interval at which the control plane is tried until it is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A directory to watch, as a command-line argument: `DIR` or `NAME=DIR`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedArgument {
    /// The model's name; by default the name of the directory.
    pub name: ModelName,
    /// The directory, which mirrors `/data` of an image.
    pub directory: PathBuf,
}

/// The argument names no directory, or the directory's name is none of a model.
#[derive(Debug, thiserror::Error)]
pub enum InvalidWatched {
    /// There is no such directory.
    #[error("{} is not a directory", .0.display())]
    Directory(PathBuf),
    /// The name of the model is not valid.
    #[error("{0}; write NAME=DIR to give the model a name")]
    Name(#[from] InvalidName),
}

impl FromStr for WatchedArgument {
    type Err = InvalidWatched;

    fn from_str(text: &str) -> Result<Self, InvalidWatched> {
        let path = Path::new(text);
        let (name, path) = match text.split_once('=') {
            Some((name, directory)) if !path.is_dir() => (Some(name), Path::new(directory)),
            _ => (None, path),
        };
        let found = path.canonicalize().ok().filter(|path| path.is_dir());
        let directory = found.ok_or_else(|| InvalidWatched::Directory(path.to_owned()))?;
        let last = directory.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self { name: name.unwrap_or(&last).parse()?, directory })
    }
}

/// The control plane that serves the packages, and the images that it reads.
#[derive(Debug)]
pub struct Target {
    /// The address of its admin listener.
    pub admin: String,
    /// The credentials for it.
    pub access: Access,
    /// The client for image layout directories.
    pub client: Client,
    /// The tag that packages are pushed to.
    pub tag: Tag,
    /// The frameworks of models.
    pub frameworks: Vec<Framework>,
    /// The most bytes of a package.
    pub max_size: u64,
}

/// Waits until the control plane is ready, whose health listener is at `health`. Then has the
/// packages of all directories served, calls `ready`, and has each change served.
///
/// # Errors
/// The health listener cannot be called.
pub async fn follow(
    watched: &mut [Watched<'_>],
    health: SocketAddr,
    ready: impl FnOnce(),
) -> Result<Infallible, Error> {
    let url = format!("http://{health}/readyz");
    let failed =
        |source: reqwest::Error| Error::Unreachable { address: url.clone(), source: source.into() };
    let (client, _, _) = Access::default().http(&url).await?;
    let client = client.build().map_err(failed)?;
    while !client.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
        sleep(POLL_INTERVAL).await;
    }
    join_all(watched.iter_mut().map(Watched::next)).await;
    ready();
    join_all(watched.iter_mut().map(Watched::follow)).await;
    // There are no directories.
    pending().await
}

/// A watched directory. Its state, as it changes, is pushed to an image layout directory, and the
/// control plane loads it.
#[derive(Debug)]
pub struct Watched<'a> {
    pub(super) target: &'a Target,
    pub(super) name: ModelName,
    pub(super) directory: PathBuf,
    pub(super) image: Reference,
    /// The digest that is served.
    pub(super) serves: Option<Digest>,
    state: Option<State>,
}

impl<'a> Watched<'a> {
    /// Watches the directory of `argument`, for the `image` of its model in a layout directory
    /// that has no other users.
    pub fn new(target: &'a Target, argument: WatchedArgument, image: Reference) -> Self {
        let WatchedArgument { name, directory } = argument;
        let image = image.with_tag(target.tag.clone());
        Self { target, name, directory, image, serves: None, state: None }
    }

    /// Has every further state of the directory served.
    async fn follow(&mut self) -> Infallible {
        loop {
            self.next().await;
        }
    }

    /// Waits for another state of the directory, at first for the present one, and has it served.
    /// The outcome is logged. If the directory changes meanwhile, the later state is served
    /// instead.
    async fn next(&mut self) {
        loop {
            let state = State::after(&self.directory, self.state.as_ref()).await;
            let outcome = tokio::select! {
                outcome = self.publish(&state) => Some(outcome),
                () = state.changed(&self.directory) => None,
            };
            self.state = Some(state);
            if let Some(outcome) = outcome {
                return self.report(outcome);
            }
        }
    }

    fn report(&mut self, outcome: Result<Published, Error>) {
        let name = &self.name;
        match outcome {
            Ok(Published::Unchanged) => tracing::info!("{name}: the package has not changed"),
            Ok(Published::Serves(digest)) => {
                tracing::info!("{name}: serves {digest}");
                self.serves = Some(digest);
            }
            Err(error) => match self.serves {
                Some(digest) => tracing::error!("{name}: {error}; still serves {digest}"),
                None => tracing::error!("{name}: {error}; serves nothing yet"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_the_name_of_its_directory_or_the_given_one() {
        let scratch = tempfile::tempdir().unwrap();
        let parsed = |text: &str| {
            let path = scratch.path().join(text.rsplit_once('=').map_or(text, |(_, path)| path));
            std::fs::create_dir_all(&path).unwrap();
            let name = text.rsplit_once('=').map(|(name, _)| format!("{name}="));
            let argument = format!("{}{}", name.unwrap_or_default(), path.display());
            argument.parse::<WatchedArgument>()
        };
        assert_eq!(parsed("churn").unwrap().name.as_str(), "churn");
        let named = parsed("team/churn=My Model").unwrap();
        assert_eq!(named.name.as_str(), "team/churn");
        assert!(named.directory.ends_with("My Model"));
        let error = parsed("My Model").unwrap_err().to_string();
        assert!(error.ends_with("write NAME=DIR to give the model a name"), "{error}");
        let missing = "churn=/no/such/directory".parse::<WatchedArgument>().unwrap_err();
        assert_eq!(missing.to_string(), "/no/such/directory is not a directory");
    }
}
