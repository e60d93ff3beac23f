//! Answers to questions about the server and its models, the same over gRPC and REST.

use outrigger_core::{Code, Digest, Failure, ModelName, Reason, Selector, Stage};
use outrigger_features::Routing;
use outrigger_lifecycle::{FailureView, ModelView, VersionView};
use outrigger_oip::{
    metadata::{IndexEntry, ModelMetadata, ServerMetadata, State, TensorMetadata},
    statistics::ModelStatistics,
};
use outrigger_score::Scorer;

use super::version::Target;
use crate::{
    audit::Record, call::Call, config::View, health::Readiness, predict::Predictor, routing,
    views::find,
};

/// The product in the server's metadata.
const NAME: &str = "outrigger";
/// The extensions of the protocol that work: binary tensors over HTTP, the others in both forms.
const EXTENSIONS: [&str; 3] = ["binary_tensor_data", "model_repository", "statistics"];

/// Answers questions. Clones share everything.
#[derive(Clone)]
pub(crate) struct States {
    predictor: Predictor,
    readiness: Readiness,
}

impl States {
    pub(crate) fn new(predictor: Predictor, readiness: Readiness) -> Self {
        Self { predictor, readiness }
    }

    /// True if requests should be sent here: all preloaded models are up.
    pub(super) fn is_ready(&self) -> bool {
        self.readiness.check().is_ok()
    }

    /// The server's metadata.
    pub(super) fn server(&self) -> ServerMetadata {
        ServerMetadata {
            name: NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: EXTENSIONS.map(ToOwned::to_owned).to_vec(),
        }
    }

    /// True if the version of a model answers, and its last runs have not all failed. Does not load
    /// it.
    ///
    /// # Errors
    /// `MODEL_NOT_FOUND`, `TAG_NOT_FOUND` or `DIGEST_NOT_FOUND` if the server does not know it.
    pub(super) fn is_model_ready(&self, target: Target<'_>) -> Result<bool, Failure> {
        let models = self.predictor.models();
        let (name, selector) = routing::target(Some(&target.selector()), models)?;
        let (name, view) = find(models, name.as_str())?;
        let digest = match &selector {
            Selector::Digest(digest) => {
                let unknown = || not_found(Reason::DigestNotFound, &name, digest);
                let version = view.versions.get(digest).ok_or_else(unknown)?;
                (version.stage == Stage::Available).then_some(*digest)
            }
            Selector::Tag(tag) => {
                let unknown = || not_found(Reason::TagNotFound, &name, tag);
                let tag = view.tags.get(tag).ok_or_else(unknown)?;
                match (&tag.serving, &tag.failure) {
                    (None, Some(FailureView { failure, .. }))
                        if failure.reason.code() == Code::NotFound =>
                    {
                        return Err(failure.clone());
                    }
                    (serving, _) => *serving,
                }
            }
        };
        let statistics = self.predictor.statistics();
        Ok(digest.is_some_and(|digest| !statistics.fails(&key(&name, digest))))
    }

    /// The metadata of a version of a model, which is loaded if need be.
    ///
    /// # Errors
    /// The failure of the model, as for a prediction.
    pub(super) async fn model(
        &self,
        call: &Call,
        target: Target<'_>,
    ) -> Result<ModelMetadata, Failure> {
        let selector = target.selector();
        let routing = Routing { model: Some(&selector), ..Routing::default() };
        let predictor = match target.has_version() {
            false => self.predictor.uncounted(),
            true => self.predictor.live(),
        };
        let lease = predictor.inspect(call, routing, None).await?;
        let models = self.predictor.models().models();
        let view = models.models.get(&lease.key.name);
        let versions = view.map(|view| available(view)).unwrap_or_default();
        let (inputs, outputs) = described(&lease.scorer, self.predictor.view(target.model));
        Ok(ModelMetadata {
            name: lease.key.name.to_string(),
            versions,
            platform: lease.scorer.plan.metadata().framework.to_string(),
            inputs,
            outputs,
        })
    }

    /// The index of all models and their versions, or of those that are ready.
    pub(super) fn index(&self, only_ready: bool) -> Vec<IndexEntry> {
        let snapshot = self.predictor.models().models();
        let entries = snapshot.models.iter().flat_map(|(name, view)| entries(name, view));
        entries.filter(|entry| !only_ready || entry.state == State::Ready.as_str()).collect()
    }

    /// The statistics of one model, or of all if it is empty.
    ///
    /// # Errors
    /// The server does not know the model or the version.
    pub(super) fn statistics(&self, target: Target<'_>) -> Result<Vec<ModelStatistics>, Failure> {
        let models = self.predictor.models();
        let (snapshot, statistics) = (models.models(), self.predictor.statistics());
        if target.model.is_empty() {
            return Ok(statistics.list(&snapshot, |_| true));
        }
        let (name, view) = find(models, target.model)?;
        if !target.has_version() {
            return Ok(statistics.list(&snapshot, |key| key.name == name));
        }
        let (_, selector) = routing::target(Some(&target.selector()), models)?;
        let digest = match &selector {
            Selector::Digest(digest) => view.versions.get(digest).map(|version| version.digest),
            Selector::Tag(tag) => view.tags.get(tag).and_then(|tag| tag.serving),
        };
        let unknown = || not_found(Reason::DigestNotFound, &name, target.version);
        let digest = digest.ok_or_else(unknown)?;
        Ok(statistics.list(&snapshot, |key| key.name == name && key.digest == digest))
    }

    /// Loads the default version of a model, and waits for it.
    ///
    /// # Errors
    /// The failure of the model.
    pub(super) async fn load(
        &self,
        call: &Call,
        target: Target<'_>,
        record: &mut Record,
    ) -> Result<(), Failure> {
        let lease = self.predictor.load(Some(&target.selector()), call.deadline()).await?;
        record.found(&lease.key.digest);
        Ok(())
    }

    /// Unloads the default version of a model.
    ///
    /// # Errors
    /// The server does not know it.
    pub(super) async fn unload(&self, target: Target<'_>) -> Result<(), Failure> {
        // A name that was asked for in vain is known too.
        self.is_model_ready(target)?;
        let models = self.predictor.models();
        let (name, selector) = routing::target(Some(&target.selector()), models)?;
        models.unload(&name, &selector, false).await
    }
}

fn key(name: &ModelName, digest: Digest) -> outrigger_core::ModelKey {
    outrigger_core::ModelKey { name: name.clone(), digest }
}

fn not_found(reason: Reason, name: &ModelName, version: impl std::fmt::Display) -> Failure {
    Failure::new(reason, format!("no version {version} of {name} is known"))
}

/// The versions that answer.
fn available(view: &ModelView) -> Vec<String> {
    let versions = view.versions.values().filter(|version| version.stage == Stage::Available);
    versions.map(|version| version.digest.to_string()).collect()
}

/// The inputs and outputs of a model in a view.
fn described(scorer: &Scorer, view: View) -> (Vec<TensorMetadata>, Vec<TensorMetadata>) {
    let plan = &scorer.plan;
    match (view, plan.raw()) {
        (View::Features, _) => outrigger_feature_table::described(plan),
        (View::Tensors, Some(raw)) => {
            let tensors =
                |specs: &[outrigger_core::TensorSpec]| specs.iter().map(Into::into).collect();
            let interface = raw.interface();
            (tensors(&interface.inputs), tensors(&interface.outputs))
        }
        (View::Tensors, None) => Default::default(),
    }
}

/// A model in the index: an entry for each version, or one without versions.
fn entries(name: &ModelName, view: &ModelView) -> Vec<IndexEntry> {
    let entry = |version, state: State, failure: Option<&FailureView>| IndexEntry {
        name: name.to_string(),
        version,
        state: state.as_str().to_owned(),
        reason: failure.map(|view| view.failure.to_string()).unwrap_or_default(),
    };
    if view.versions.is_empty() {
        let failure = view.tags.values().find_map(|tag| tag.failure.as_ref());
        return vec![entry(None, State::Unavailable, failure)];
    }
    let of = |version: &VersionView| {
        let digest = version.digest.to_string();
        entry(Some(digest), state(version), version.failure.as_ref())
    };
    view.versions.values().map(of).collect()
}

fn state(version: &VersionView) -> State {
    match (version.stage, version.activity) {
        (_, "unloading" | "draining" | "deleting") => State::Unloading,
        (Stage::Available, _) => State::Ready,
        (_, "pulling" | "preparing" | "publishing" | "loading" | "checking") => State::Loading,
        _ => State::Unavailable,
    }
}
