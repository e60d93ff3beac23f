//! The versions that a ReloadConfigRequest names. Models and their places are those of our
//! configuration: a request loads versions of them, and changes nothing else.

use std::collections::BTreeSet;

use outrigger_core::{Failure, Selector, Stage};
use outrigger_lifecycle::{Handle, ModelView, TagView};
use outrigger_proto::{
    outrigger::v1::{ModelSelector, model_selector::Version},
    tensorflow::serving::{
        ModelConfig, ModelConfigList, ReloadConfigRequest, model_server_config::Config,
        servable_version_policy::PolicyChoice,
    },
};

use super::super::version;
use super::status::digest;
use crate::routing::{self, invalid};

const LIST: &str = "config.model_config_list";

/// The name of the first model of a request, for the record of changes.
pub(super) fn first(request: &ReloadConfigRequest) -> String {
    let configs = list(request).map(|list| &list.config[..]).unwrap_or_default();
    configs.first().map(|config| version::name(&config.name)).unwrap_or_default()
}

/// The versions to load: those that a policy `specific` names, or else the model's default version.
/// One that is named more than once is loaded once, because each load is a line of the log.
///
/// # Errors
/// `REQUEST_MALFORMED`: there are none, or the request asks for more than to load them.
pub(super) fn wanted(
    request: &ReloadConfigRequest,
    models: &Handle,
) -> Result<Vec<ModelSelector>, Failure> {
    let list = list(request)?;
    let snapshot = models.models();
    let (mut wanted, mut named) = (Vec::new(), BTreeSet::new());
    for (position, config) in list.config.iter().enumerate() {
        let name = version::name(&config.name);
        let parsed = name.parse().ok();
        let view = parsed.and_then(|name| snapshot.models.get(&name)).map(|view| &**view);
        check(config, view, &format!("{LIST}.config[{position}]"))?;
        for number in versions(config).filter(|number| named.insert((name.clone(), *number))) {
            let version = number.map(|number| Version::Tag(number.to_string()));
            wanted.push(ModelSelector { name: name.clone(), version });
        }
    }
    if wanted.is_empty() && !snapshot.models.is_empty() {
        return Err(invalid(LIST, "it names no version of a model"));
    }
    Ok(wanted)
}

/// True if a version that is to be loaded answers already.
pub(super) fn answers(selector: &ModelSelector, models: &Handle) -> bool {
    let Ok((name, version)) = routing::target(Some(selector), models) else { return false };
    let Selector::Tag(tag) = version else { return false };
    let snapshot = models.models();
    let view = snapshot.models.get(&name);
    let serving = view
        .and_then(|view| find(view, tag.as_str())?.serving.and_then(|it| view.versions.get(&it)));
    serving.is_some_and(|version| version.stage == Stage::Available)
}

fn find<'a>(view: &'a ModelView, tag: &str) -> Option<&'a TagView> {
    view.tags.iter().find(|(name, _)| name.as_str() == tag).map(|(_, shown)| shown)
}

fn list(request: &ReloadConfigRequest) -> Result<&ModelConfigList, Failure> {
    match request.config.as_ref().and_then(|config| config.config.as_ref()) {
        Some(Config::ModelConfigList(list)) => Ok(list),
        _ => Err(invalid("config", "must have a model_config_list")),
    }
}

/// Refuses what the configuration of this server decides, if the request has something else.
fn check(config: &ModelConfig, view: Option<&ModelView>, field: &str) -> Result<(), Failure> {
    let place = view.map(|view| view.image.trim_end_matches('/'));
    let path = config.base_path.trim_end_matches('/');
    if !path.is_empty() && place != Some(path) {
        let message = "must be empty, or the directory that models[].directory names here";
        return Err(invalid(&format!("{field}.base_path"), message));
    }
    for (label, number) in &config.version_labels {
        let known = |tag: &str| digest(find(view?, tag)?);
        let number = known(&number.to_string());
        if number.is_none() || known(label) != number {
            let message = format!("{label:?} is set here, by models[].labels or as a tag");
            return Err(invalid(&format!("{field}.version_labels"), &message));
        }
    }
    Ok(())
}

/// The numbers of the versions that a policy names; none for the default version.
fn versions(config: &ModelConfig) -> impl Iterator<Item = Option<i64>> {
    let policy = config.model_version_policy.as_ref().and_then(|it| it.policy_choice.as_ref());
    let (numbers, default) = match policy {
        Some(PolicyChoice::Specific(specific)) => (&specific.versions[..], None),
        Some(PolicyChoice::Latest(_) | PolicyChoice::All(_)) | None => (&[][..], Some(None)),
    };
    numbers.iter().copied().map(Some).chain(default)
}
