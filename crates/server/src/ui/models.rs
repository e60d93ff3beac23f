//! Models as the page lists them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use outrigger_core::{Digest, ModelName, Selector, Stage, Tag};
use outrigger_lifecycle::{FailureView, ModelView, Snapshot, VersionView};
use serde::Serialize;

use super::{overview::milliseconds, topic::Topic};

const NAME: &str = "models";

/// What is told of models.
#[derive(Default)]
pub(super) struct Listed {
    last: Arc<Snapshot>,
    seen: BTreeMap<ModelName, (Arc<ModelView>, Row)>,
    topic: Topic,
}

/// A model in a line: the version that a request without one means, and what
/// stands in the way of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    name: String,
    image: String,
    /// What the row is about: what is answered, or what should be.
    digest: Option<String>,
    state: &'static str,
    activity: &'static str,
    /// When it got into this state, milliseconds since 1970.
    since: Option<u64>,
    /// Of all versions on disk.
    size_bytes: u64,
    /// Of those in the engine: what they take of its memory, as far as files tell.
    memory_bytes: u64,
    versions: usize,
    tags: Vec<TagCell>,
    failure: Option<FailureCell>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct TagCell {
    name: String,
    digest: Option<String>,
    /// The registry has something else.
    behind: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct FailureCell {
    reason: &'static str,
    message: String,
    permanent: bool,
}

/// What has changed.
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
    /// What is to be told of models now; `meant` is what a request means that
    /// names no version. The work is that of the models that changed, until one
    /// looks different.
    pub(super) fn topic(
        &mut self,
        snapshot: &Arc<Snapshot>,
        meant: impl Fn(&ModelName) -> Selector,
    ) -> Topic {
        if Arc::ptr_eq(&self.last, snapshot) && !self.topic.is_new() {
            return self.topic.clone();
        }
        let mut before = std::mem::take(&mut self.seen);
        let mut changed = BTreeSet::new();
        for (name, view) in &snapshot.models {
            let (last, old) = before.remove(name).unzip();
            let row = match old {
                Some(old) if last.is_some_and(|last| Arc::ptr_eq(&last, view)) => old,
                old => {
                    let row = row(name, view, &meant(name));
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

fn row(name: &ModelName, view: &ModelView, selector: &Selector) -> Row {
    let version = headline(view, selector);
    Row {
        name: name.to_string(),
        image: view.image.clone(),
        digest: version.map(|version| version.digest.to_string()),
        state: version.map_or(Stage::New, |version| version.stage).as_str(),
        activity: version.map_or("", |version| version.activity),
        since: version.and_then(since).map(milliseconds),
        size_bytes: view.versions.values().map(|version| version.size_bytes).sum(),
        memory_bytes: in_engine(view).map(|version| version.size_bytes).sum(),
        versions: view.versions.len(),
        tags: view.tags.iter().map(|(name, tag)| cell(name, tag.serving, tag.registry)).collect(),
        failure: failure(view, version, selector).map(told),
    }
}

fn in_engine(view: &ModelView) -> impl Iterator<Item = &VersionView> {
    view.versions.values().filter(|version| version.stage >= Stage::Loaded)
}

/// The version that answers, else the one that should, else the latest.
fn headline<'a>(view: &'a ModelView, selector: &Selector) -> Option<&'a VersionView> {
    let meant = match selector {
        Selector::Digest(digest) => Some(*digest),
        Selector::Tag(tag) => view.tags.get(tag).and_then(|tag| tag.serving.or(tag.registry)),
    };
    let named = meant.and_then(|digest| view.versions.get(&digest));
    named.or_else(|| view.versions.values().max_by_key(|version| (version.stage, since(version))))
}

fn since(version: &VersionView) -> Option<SystemTime> {
    version.history.last().map(|transition| transition.at)
}

/// What went wrong with the version, else with the look-up of its tag, else with
/// another version.
fn failure<'a>(
    view: &'a ModelView,
    version: Option<&'a VersionView>,
    selector: &Selector,
) -> Option<&'a FailureView> {
    let tag = match selector {
        Selector::Tag(tag) => view.tags.get(tag),
        Selector::Digest(_) => None,
    };
    let own = version.and_then(|version| version.failure.as_ref());
    let looked_up = || tag.and_then(|tag| tag.failure.as_ref());
    let others = || view.versions.values().find_map(|version| version.failure.as_ref());
    own.or_else(looked_up).or_else(others)
}

fn told(view: &FailureView) -> FailureCell {
    FailureCell {
        reason: view.failure.reason.as_str(),
        message: view.failure.message.clone(),
        permanent: view.permanent,
    }
}

fn cell(name: &Tag, serving: Option<Digest>, registry: Option<Digest>) -> TagCell {
    TagCell {
        name: name.to_string(),
        digest: serving.map(|digest| digest.to_string()),
        behind: registry.is_some() && registry != serving,
    }
}

/// The first digits, for people.
pub(super) fn short_digest(digest: &Digest) -> String {
    digest.hex()[..12].to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use outrigger_core::{Failure, Reason};
    use outrigger_lifecycle::TagView;

    use super::*;

    fn digest(text: &str) -> Digest {
        Digest::of(text.as_bytes())
    }

    fn version(digest: Digest, stage: Stage, reason: Option<Reason>) -> VersionView {
        let failure = |reason| FailureView {
            failure: Failure::new(reason, "why"),
            at: UNIX_EPOCH,
            permanent: true,
            retry_at: None,
        };
        VersionView {
            engine: None,
            digest,
            platform_digest: None,
            stage,
            activity: "idle",
            servable: None,
            size_bytes: 1,
            last_used_at: None,
            failure: reason.map(failure),
            history: Vec::new(),
            replayed: None,
        }
    }

    fn model(serving: &str, registry: &str, versions: Vec<VersionView>) -> Arc<ModelView> {
        let tag = TagView {
            serving: Some(digest(serving)),
            registry: Some(digest(registry)),
            ..TagView::default()
        };
        Arc::new(ModelView {
            tags: [("latest".parse().unwrap(), tag)].into(),
            versions: versions.into_iter().map(|it| (it.digest, it)).collect(),
            ..ModelView::default()
        })
    }

    fn latest() -> Selector {
        Selector::Tag("latest".parse().unwrap())
    }

    #[test]
    fn a_row_is_about_what_answers_and_tells_what_stands_in_the_way() {
        let old = version(digest("old"), Stage::Available, None);
        let new = version(digest("new"), Stage::Downloaded, Some(Reason::GoldenMismatch));
        let view = model("old", "new", vec![old, new]);
        let row = row(&"churn".parse().unwrap(), &view, &latest());
        assert_eq!((row.state, row.digest), ("available", Some(digest("old").to_string())));
        assert_eq!(row.failure.unwrap().reason, "GOLDEN_MISMATCH");
        assert!(row.tags[0].behind);
        assert_eq!((row.versions, row.size_bytes), (2, 2));
        assert_eq!(row.memory_bytes, 1, "only what is in the engine");
    }

    #[test]
    fn only_rows_that_look_different_are_told_again() {
        let up = || model("a", "a", vec![version(digest("a"), Stage::Available, None)]);
        let snapshot = |models: &[(&str, &Arc<ModelView>)]| {
            let model =
                |&(name, view): &(&str, &Arc<ModelView>)| (name.parse().unwrap(), Arc::clone(view));
            let models = models.iter().map(model).collect();
            Arc::new(Snapshot { models, ..Snapshot::default() })
        };
        let mut listed = Listed::default();
        let mut told = 0;
        let mut tell = |snapshot| {
            let topic = listed.topic(&snapshot, |_| latest());
            let bytes = topic.tell(&mut told)?;
            Some(String::from_utf8(bytes.to_vec()).unwrap())
        };
        let (one, two) = (up(), up());
        let first = tell(snapshot(&[("one", &one), ("two", &two)])).unwrap();
        assert!(first.starts_with("event: models\n") && first.contains("one"), "{first}");
        // Used since: nothing that the list shows.
        let mut used = ModelView::clone(&two);
        used.versions.values_mut().for_each(|it| it.last_used_at = Some(UNIX_EPOCH));
        assert_eq!(tell(snapshot(&[("one", &one), ("two", &Arc::new(used))])), None);
        let down = model("a", "a", vec![version(digest("a"), Stage::New, None)]);
        let step = tell(snapshot(&[("two", &down)])).unwrap();
        assert!(step.starts_with("event: models-step\n"), "{step}");
        assert!(step.contains(r#""gone":["one"]"#) && step.contains(r#""name":"two""#), "{step}");
    }
}
