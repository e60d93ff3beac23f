//! The names of models in the configuration, and the images they refer to.

use std::{collections::BTreeMap, str::FromStr};

use outrigger_core::{EngineId, Failure, ModelKey, ModelName, Reason, Selector, Tag};
use outrigger_oci::{Prefix, Reference};

use crate::{
    config::{Config, ModelEntry},
    error::Error,
};

/// The names of models, and their images. A request never names a host: only the configuration maps
/// names to references.
#[derive(Debug)]
pub(crate) struct Names {
    default_tag: Tag,
    repository: Option<String>,
    allowed: Vec<Prefix>,
    entries: BTreeMap<ModelName, Entry>,
}

#[derive(Debug)]
struct Entry {
    configured: ModelEntry,
    image: Option<Reference>,
}

impl Names {
    /// # Errors
    /// If a reference or prefix cannot be parsed, or a name is listed twice.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let allowed = config.images.allowed.iter().enumerate();
        let allowed = allowed.map(|(i, text)| parse(&format!("images.allowed[{i}]"), text));
        let mut names = Self {
            default_tag: config.images.default_tag.clone(),
            repository: config.images.repository.clone(),
            allowed: allowed.collect::<Result<_, _>>()?,
            entries: BTreeMap::new(),
        };
        if let Some(repository) = &names.repository {
            parse::<Prefix>("images.repository", repository)?;
        }
        for (i, entry) in config.models.iter().enumerate() {
            let key = format!("models[{i}]");
            let image = entry.image.as_deref();
            let image = image.map(|text| parse(&format!("{key}.image"), text)).transpose()?;
            let value = Entry { configured: entry.clone(), image };
            if names.entries.insert(entry.name.clone(), value).is_some() {
                let message = format!("{} is listed twice", entry.name);
                return Err(Error::Config { key, message });
            }
        }
        Ok(names)
    }

    /// The engine that the configuration names for `model`.
    pub(crate) fn engine(&self, model: &ModelName) -> Option<&EngineId> {
        self.entries.get(model)?.configured.engine.as_ref()
    }

    /// The selector of a request for `model` without tag and digest.
    pub(crate) fn default_selector(&self, model: &ModelName) -> Selector {
        match self.entries.get(model).map(|entry| &entry.configured) {
            Some(ModelEntry { digest: Some(digest), .. }) => Selector::Digest(*digest),
            Some(ModelEntry { tag: Some(tag), .. }) => Selector::Tag(tag.clone()),
            _ => Selector::Tag(self.default_tag.clone()),
        }
    }

    /// The default tag, and the tags of models that have another default.
    pub(crate) fn default_tags(&self) -> (Tag, BTreeMap<ModelName, Tag>) {
        let own = |(name, entry): (&ModelName, &Entry)| {
            Some((name.clone(), entry.configured.tag.clone()?))
        };
        (self.default_tag.clone(), self.entries.iter().filter_map(own).collect())
    }

    /// The models to load at the start and keep up.
    pub(crate) fn preloads(&self) -> impl Iterator<Item = (ModelName, Selector)> {
        let preloaded = self.entries.values().filter(|entry| entry.configured.preload);
        preloaded.map(|entry| &entry.configured.name).map(|name| {
            let selector = self.default_selector(name);
            (name.clone(), selector)
        })
    }

    /// The image of `model`, without tag and digest.
    ///
    /// # Errors
    /// `MODEL_NOT_FOUND` and `IMAGE_NOT_ALLOWED`.
    pub(crate) fn image(&self, model: &ModelName) -> Result<Reference, Failure> {
        let listed = self.entries.get(model).and_then(|entry| entry.image.clone());
        let image = match (listed, &self.repository) {
            (Some(image), _) => image,
            (None, Some(repository)) => under(repository, model)?,
            (None, None) => return Err(unknown(model, "it is not configured")),
        };
        if self.allowed.iter().any(|prefix| image.is_within(prefix)) {
            return Ok(image);
        }
        let message = format!("model {model}: its image is not under images.allowed");
        Err(Failure::new(Reason::ImageNotAllowed, message))
    }

    /// The image of one version.
    pub(crate) fn version(&self, key: &ModelKey) -> Result<Reference, Failure> {
        Ok(self.image(&key.name)?.with_digest(key.digest))
    }
}

fn under(repository: &str, model: &ModelName) -> Result<Reference, Failure> {
    let text = format!("{}/{model}", repository.trim_end_matches('/'));
    // Some names, such as `a..b`, are not valid as a repository in any registry.
    text.parse().map_err(|_| unknown(model, "its name cannot be that of an image"))
}

fn unknown(model: &ModelName, why: &str) -> Failure {
    Failure::new(Reason::ModelNotFound, format!("model {model}: {why}"))
}

pub(crate) fn parse<T: FromStr<Err: std::fmt::Display>>(key: &str, text: &str) -> Result<T, Error> {
    let config = |error: T::Err| Error::Config { key: key.to_owned(), message: error.to_string() };
    text.parse().map_err(config)
}
