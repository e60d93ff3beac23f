//! Models as the page lists them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use outrigger_console::Topic;
use outrigger_core::{ModelName, Selector};
use outrigger_lifecycle::{ModelView, Snapshot};
use outrigger_proto::outrigger::v1::{Failure, Model, ModelVersion, Tag, model_version::State};
use serde::Serialize;

use super::overview::milliseconds;

const NAME: &str = "models";

/// The list of models, and its revisions.
#[derive(Default)]
pub(crate) struct Listed {
    last: Arc<Snapshot>,
    seen: BTreeMap<ModelName, (Arc<ModelView>, Row)>,
    topic: Topic,
}

/// A model as one row: the version that answers requests without a version, and the failure that
/// prevents a newer one.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    name: String,
    image: String,
    /// The version that the row describes: the one that answers, else the one that should.
    digest: Option<String>,
    state: String,
    activity: String,
    /// The time at which the version entered its state, in milliseconds since 1970.
    since: Option<u64>,
    /// The bytes of all versions on disk.
    size_bytes: u64,
    /// The bytes of the versions in the engine, an estimate of their memory there.
    memory_bytes: u64,
    versions: usize,
    tags: Vec<TagCell>,
    failure: Option<FailureCell>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct TagCell {
    name: String,
    digest: Option<String>,
    /// True if the tag in the registry points to another digest.
    behind: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct FailureCell {
    reason: String,
    message: String,
    permanent: bool,
}

/// The rows that have changed.
#[derive(Serialize)]
struct Step<'a> {
    models: Vec<&'a Row>,
    gone: &'a [ModelName],
}

#[derive(Serialize)]
struct Whole<'a> {
    models: Vec<&'a Row>,
}

impl Listed {
    /// The current list. `look` returns a model as the API shows it, and the version for requests
    /// that name none. Only the rows of changed models are computed, and the list is encoded only
    /// if a row differs.
    pub(crate) fn topic(
        &mut self,
        snapshot: &Arc<Snapshot>,
        look: impl Fn(&ModelName, &ModelView) -> (Model, Selector),
    ) -> Topic {
        if Arc::ptr_eq(&self.last, snapshot) && !self.topic.is_new() {
            return self.topic.clone();
        }
        let mut before = std::mem::take(&mut self.seen);
        let mut changed = BTreeSet::new();
        for (name, view) in snapshot.models.iter() {
            let (last, old) = before.remove(name).unzip();
            let row = match old {
                Some(old) if last.is_some_and(|last| Arc::ptr_eq(&last, view)) => old,
                old => {
                    let (model, selector) = look(name, view);
                    let row = row(&model, &view.image, &selector);
                    if old.as_ref() != Some(&row) {
                        changed.insert(name);
                    }
                    row
                }
            };
            self.seen.insert(name.clone(), (Arc::clone(view), row));
        }
        self.last = Arc::clone(snapshot);
        let gone: Vec<_> = before.into_keys().collect();
        let first = self.topic.is_new();
        if first || !changed.is_empty() || !gone.is_empty() {
            let whole = Whole { models: self.seen.values().map(|(_, row)| row).collect() };
            let models = changed.into_iter().map(|name| &self.seen[name].1).collect();
            let step = Step { models, gone: &gone };
            self.topic = self.topic.next(NAME, &whole, (!first).then_some(&step));
        }
        self.topic.clone()
    }
}

fn row(model: &Model, image: &str, selector: &Selector) -> Row {
    let version = headline(model, selector);
    Row {
        name: model.name.clone(),
        image: image.to_owned(),
        digest: version.map(|version| version.digest.clone()),
        state: word(version.map_or(State::New, ModelVersion::state)),
        activity: version.map(|version| version.activity.clone()).unwrap_or_default(),
        since: version.and_then(since).map(milliseconds),
        size_bytes: model.versions.iter().map(|version| version.size_bytes).sum(),
        memory_bytes: in_engine(model).map(|version| version.size_bytes).sum(),
        versions: model.versions.len(),
        tags: model.tags.iter().map(cell).collect(),
        failure: failure(model, version, selector).map(failure_cell),
    }
}

/// The name of a state in the API's JSON.
fn word(state: State) -> String {
    state.as_str_name().trim_start_matches("STATE_").to_lowercase()
}

fn in_engine(model: &Model) -> impl Iterator<Item = &ModelVersion> {
    model.versions.iter().filter(|version| version.state() >= State::Loaded)
}

/// The version that answers, else the one that should, else the latest.
fn headline<'a>(model: &'a Model, selector: &Selector) -> Option<&'a ModelVersion> {
    let meant = match selector {
        Selector::Digest(digest) => Some(digest.to_string()),
        Selector::Tag(_) => tag(model, selector).and_then(|tag| {
            [&tag.serving_digest, &tag.registry_digest]
                .into_iter()
                .find(|it| !it.is_empty())
                .cloned()
        }),
    };
    let versions = || model.versions.iter();
    let named = meant.and_then(|digest| versions().find(|version| version.digest == digest));
    named.or_else(|| versions().max_by_key(|version| (version.state(), since(version))))
}

fn tag<'a>(model: &'a Model, selector: &Selector) -> Option<&'a Tag> {
    match selector {
        Selector::Tag(name) => model.tags.iter().find(|tag| tag.name == name.as_str()),
        Selector::Digest(_) => None,
    }
}

fn since(version: &ModelVersion) -> Option<SystemTime> {
    SystemTime::try_from(version.history.last()?.at?).ok()
}

/// The failure of the version, else of its tag's look-up, else of another version.
fn failure<'a>(
    model: &'a Model,
    version: Option<&'a ModelVersion>,
    selector: &Selector,
) -> Option<&'a Failure> {
    let own = version.and_then(|version| version.failure.as_ref());
    let looked_up = || tag(model, selector).and_then(|tag| tag.failure.as_ref());
    let others = || model.versions.iter().find_map(|version| version.failure.as_ref());
    own.or_else(looked_up).or_else(others)
}

fn failure_cell(failure: &Failure) -> FailureCell {
    FailureCell {
        reason: failure.reason.clone(),
        message: failure.message.clone(),
        permanent: failure.permanent,
    }
}

fn cell(tag: &Tag) -> TagCell {
    let Tag { name, serving_digest: serving, registry_digest: registry, .. } = tag;
    TagCell {
        name: name.clone(),
        digest: Some(serving).filter(|digest| !digest.is_empty()).cloned(),
        behind: !registry.is_empty() && registry != serving,
    }
}

/// The first digits of a digest, short enough for people to compare.
pub(crate) fn short_digest(digest: &str) -> String {
    let hex = digest.split_once(':').map_or(digest, |(_, hex)| hex);
    hex.chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use outrigger_core::{Digest, Stage};
    use outrigger_lifecycle::VersionView;

    use super::*;

    fn digest(text: &str) -> Digest {
        Digest::of(text.as_bytes())
    }

    fn latest() -> Selector {
        Selector::Tag("latest".parse().unwrap())
    }

    fn version(text: &str, state: State, reason: Option<&str>) -> ModelVersion {
        let failure = |reason: &str| Failure {
            reason: reason.to_owned(),
            message: "why".to_owned(),
            permanent: true,
            ..Failure::default()
        };
        ModelVersion {
            digest: digest(text).to_string(),
            state: state.into(),
            size_bytes: 1,
            failure: reason.map(failure),
            ..ModelVersion::default()
        }
    }

    #[test]
    fn a_row_shows_the_answering_version_and_the_failure_of_the_next() {
        let old = version("old", State::Available, None);
        let new = version("new", State::Downloaded, Some("GOLDEN_MISMATCH"));
        let tag = Tag {
            name: "latest".to_owned(),
            serving_digest: old.digest.clone(),
            registry_digest: new.digest.clone(),
            ..Tag::default()
        };
        let (tags, versions) = (vec![tag], vec![old, new]);
        let model = Model { name: "churn".to_owned(), tags, versions, ..Model::default() };
        let row = row(&model, "", &latest());
        assert_eq!((&*row.state, row.digest), ("available", Some(digest("old").to_string())));
        assert_eq!(row.failure.unwrap().reason, "GOLDEN_MISMATCH");
        assert!(row.tags[0].behind);
        assert_eq!((row.versions, row.size_bytes), (2, 2));
        assert_eq!(row.memory_bytes, 1, "only what is in the engine");
    }

    /// A model with a version in that stage.
    fn model(stage: Stage) -> Arc<ModelView> {
        let version = VersionView {
            engine: None,
            digest: digest("a"),
            platform_digest: None,
            stage,
            activity: "idle",
            servable: None,
            size_bytes: 1,
            last_used_at: None,
            failure: None,
            history: Vec::new(),
            replayed: None,
        };
        let versions = [(version.digest, version)].into();
        Arc::new(ModelView { versions, ..ModelView::default() })
    }

    /// A model as the API shows it, with the fields that this test changes.
    fn look(name: &ModelName, view: &ModelView) -> (Model, Selector) {
        let versions = view.versions.values().map(|view| {
            let state = if view.stage == Stage::New { State::New } else { State::Available };
            let last_used_at = view.last_used_at.map(Into::into);
            ModelVersion { last_used_at, ..version("a", state, None) }
        });
        let (name, versions) = (name.to_string(), versions.collect());
        (Model { name, versions, ..Model::default() }, latest())
    }

    #[test]
    fn only_rows_with_visible_changes_are_sent_again() {
        let snapshot = |models: &[(&str, &Arc<ModelView>)]| {
            let model =
                |&(name, view): &(&str, &Arc<ModelView>)| (name.parse().unwrap(), Arc::clone(view));
            let models = models.iter().map(model).collect();
            Arc::new(Snapshot { models, ..Snapshot::default() })
        };
        let mut listed = Listed::default();
        let mut sent = 0;
        let mut next_event = |snapshot| {
            let topic = listed.topic(&snapshot, look);
            let bytes = topic.event_after(&mut sent)?;
            Some(String::from_utf8(bytes.to_vec()).unwrap())
        };
        let (one, two) = (model(Stage::Available), model(Stage::Available));
        let first = next_event(snapshot(&[("one", &one), ("two", &two)])).unwrap();
        assert!(first.starts_with("event: models\n") && first.contains("one"), "{first}");
        // A later use does not change any field that the list shows.
        let mut used = ModelView::clone(&two);
        used.versions.values_mut().for_each(|it| it.last_used_at = Some(UNIX_EPOCH));
        assert_eq!(next_event(snapshot(&[("one", &one), ("two", &Arc::new(used))])), None);
        let step = next_event(snapshot(&[("two", &model(Stage::New))])).unwrap();
        assert!(step.starts_with("event: models-step\n"), "{step}");
        assert!(step.contains(r#""gone":["one"]"#) && step.contains(r#""name":"two""#), "{step}");
    }
}
