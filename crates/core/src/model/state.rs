//! States of a version, and the transitions between them.

use std::borrow::Cow;

use crate::{Attempt, Moment, ServableId, Stage, Step};

/// The state of a version. Each state holds only the data it needs; its attempt is the one whose
/// completion ends the state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum State {
    /// No files in the store, and no work under way. The state after a crash.
    New,
    /// The files are being pulled. Ends with `Pulled`, or when the version is no longer wanted.
    Pulling {
        /// The pull.
        attempt: Attempt,
    },
    /// Verified files in the store, unknown to the engine.
    Downloaded,
    /// Metadata and signature are being read. Ends with `Prepared`.
    Preparing {
        /// The reading.
        attempt: Attempt,
    },
    /// Metadata and signature are read. Another version of the model has to leave the engine before
    /// this one is published.
    Prepared,
    /// The files are being put where the engine finds them. Ends with `Published`.
    Publishing {
        /// The publication.
        attempt: Attempt,
        /// The servable to publish.
        id: ServableId,
    },
    /// The files are being deleted. Ends with `Deleted`.
    Deleting {
        /// The deletion.
        attempt: Attempt,
    },
    /// In the engine's configuration; not available, or not known to be available. After a crash of
    /// Outrigger a version stays here until the engine reports its state. Ends with `Up`,
    /// `LoadFailed`, or when the version is no longer wanted.
    Loading {
        /// The servable to load.
        id: ServableId,
    },
    /// The engine serves it and the gate checks it. Ends with `Checked`.
    Checking {
        /// The check.
        attempt: Attempt,
        /// The servable to check.
        id: ServableId,
    },
    /// In the engine's configuration, and dropped from it as soon as no lease of an earlier route
    /// exists.
    Leaving {
        /// The servable to drop.
        id: ServableId,
    },
    /// Dropped from the configuration. Ends with `Gone`; only then may its files be deleted.
    Unloading {
        /// The servable that the engine unloads.
        id: ServableId,
    },
    /// Routed.
    Serving {
        /// The routed servable.
        id: ServableId,
    },
    /// Not routed any more, but leases exist. If it is wanted again, it is routed again.
    Draining {
        /// The servable in use by the leases.
        id: ServableId,
    },
}

impl State {
    /// The stage that this state belongs to.
    pub fn stage(&self) -> Stage {
        match self {
            Self::New | Self::Pulling { .. } => Stage::New,
            Self::Downloaded
            | Self::Preparing { .. }
            | Self::Prepared
            | Self::Publishing { .. }
            | Self::Deleting { .. } => Stage::Downloaded,
            Self::Loading { .. }
            | Self::Checking { .. }
            | Self::Leaving { .. }
            | Self::Unloading { .. } => Stage::Loaded,
            Self::Serving { .. } | Self::Draining { .. } => Stage::Available,
        }
    }

    /// The step under way; `None` if the version is idle or serving.
    pub fn step(&self) -> Option<Step> {
        match self {
            Self::New | Self::Downloaded | Self::Serving { .. } => None,
            Self::Pulling { .. } => Some(Step::Pull),
            Self::Preparing { .. } => Some(Step::Prepare),
            Self::Prepared => Some(Step::Replace),
            Self::Publishing { .. } => Some(Step::Publish),
            Self::Deleting { .. } => Some(Step::Delete),
            Self::Loading { .. } => Some(Step::Load),
            Self::Checking { .. } => Some(Step::Gate),
            Self::Leaving { .. } | Self::Draining { .. } => Some(Step::Drain),
            Self::Unloading { .. } => Some(Step::Unload),
        }
    }

    /// The current activity, for people.
    pub fn activity(&self) -> &'static str {
        match self {
            Self::New | Self::Downloaded => "idle",
            Self::Pulling { .. } => "pulling",
            Self::Preparing { .. } => "preparing",
            Self::Prepared => "waiting for another version to leave the engine",
            Self::Publishing { .. } => "publishing",
            Self::Deleting { .. } => "deleting",
            Self::Loading { .. } => "loading",
            Self::Checking { .. } => "checking",
            Self::Unloading { .. } => "unloading",
            Self::Serving { .. } => "serving",
            Self::Leaving { .. } | Self::Draining { .. } => "draining",
        }
    }

    /// The servable, from publication until the engine has dropped it.
    pub fn servable(&self) -> Option<&ServableId> {
        match self {
            Self::Publishing { id, .. }
            | Self::Loading { id }
            | Self::Checking { id, .. }
            | Self::Leaving { id }
            | Self::Unloading { id }
            | Self::Serving { id }
            | Self::Draining { id } => Some(id),
            _ => None,
        }
    }

    /// Whether the engine may be using its files.
    pub fn in_engine(&self) -> bool {
        self.stage() >= Stage::Loaded
    }

    /// Whether its files are needed: being read, published or loaded.
    pub fn needs_files(&self) -> bool {
        !matches!(self, Self::New | Self::Pulling { .. } | Self::Downloaded | Self::Deleting { .. })
    }
}

/// One change of stage.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transition {
    /// The time of the change.
    pub at: Moment,
    /// The stage before.
    pub from: Stage,
    /// The stage after.
    pub to: Stage,
    /// The cause.
    pub cause: Cow<'static, str>,
}
