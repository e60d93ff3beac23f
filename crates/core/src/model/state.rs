//! States of a version, and the transitions between them.

use std::borrow::Cow;

use crate::{Attempt, Moment, ServableId, Stage, Step};

/// Where a version stands. Each state owns only what it needs; the attempt of a
/// state is the one whose completion ends it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing on disk, and nothing going on. After a crash: here.
    New,
    /// Its files are being pulled. Ends by `Pulled`, or when unwanted.
    Pulling {
        /// The pull.
        attempt: Attempt,
    },
    /// Verified files in the store, unknown to the engine.
    Downloaded,
    /// Metadata and signature are being read. Ends by `Prepared`.
    Preparing {
        /// The reading.
        attempt: Attempt,
    },
    /// It is being put where the engine will find it. Ends by `Published`.
    Publishing {
        /// The publication.
        attempt: Attempt,
        /// As what.
        id: ServableId,
    },
    /// Its files are being deleted. Ends by `Deleted`.
    Deleting {
        /// The deletion.
        attempt: Attempt,
    },
    /// In the engine's configuration; not available, or not known to be. After
    /// a crash of ours: here, until the engine says what it has. Ends by `Up`,
    /// `LoadFailed`, or when unwanted.
    Loading {
        /// As what.
        id: ServableId,
    },
    /// The engine serves it; the gate is at work. Ends by `Checked`.
    Checking {
        /// The check.
        attempt: Attempt,
        /// As what.
        id: ServableId,
    },
    /// In the engine's configuration but to be dropped, as soon as no lease of
    /// an earlier route exists.
    Leaving {
        /// As what.
        id: ServableId,
    },
    /// Dropped from the configuration. Ends by `Gone`: only then may its files go.
    Unloading {
        /// As what.
        id: ServableId,
    },
    /// Routed.
    Serving {
        /// As what.
        id: ServableId,
    },
    /// Not routed any more; leases exist. Wanted again, it is routed again.
    Draining {
        /// As what.
        id: ServableId,
    },
}

impl State {
    /// How far that is.
    pub fn stage(&self) -> Stage {
        match self {
            Self::New | Self::Pulling { .. } => Stage::New,
            Self::Downloaded
            | Self::Preparing { .. }
            | Self::Publishing { .. }
            | Self::Deleting { .. } => Stage::Downloaded,
            Self::Loading { .. }
            | Self::Checking { .. }
            | Self::Leaving { .. }
            | Self::Unloading { .. } => Stage::Loaded,
            Self::Serving { .. } | Self::Draining { .. } => Stage::Available,
        }
    }

    /// What is being done with it; `None`: it rests or serves.
    pub fn step(&self) -> Option<Step> {
        match self {
            Self::New | Self::Downloaded | Self::Serving { .. } => None,
            Self::Pulling { .. } => Some(Step::Pull),
            Self::Preparing { .. } => Some(Step::Prepare),
            Self::Publishing { .. } => Some(Step::Publish),
            Self::Deleting { .. } => Some(Step::Delete),
            Self::Loading { .. } => Some(Step::Load),
            Self::Checking { .. } => Some(Step::Gate),
            Self::Leaving { .. } | Self::Draining { .. } => Some(Step::Drain),
            Self::Unloading { .. } => Some(Step::Unload),
        }
    }

    /// What goes on, for people.
    pub fn activity(&self) -> &'static str {
        match self {
            Self::New | Self::Downloaded => "idle",
            Self::Pulling { .. } => "pulling",
            Self::Preparing { .. } => "preparing",
            Self::Publishing { .. } => "publishing",
            Self::Deleting { .. } => "deleting",
            Self::Loading { .. } => "loading",
            Self::Checking { .. } => "checking",
            Self::Unloading { .. } => "unloading",
            Self::Serving { .. } => "serving",
            Self::Leaving { .. } | Self::Draining { .. } => "draining",
        }
    }

    /// Its name and version in the engine, from publication until it is gone.
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

    /// Whether the engine may have something to do with its files.
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
    /// When.
    pub at: Moment,
    /// From.
    pub from: Stage,
    /// To.
    pub to: Stage,
    /// Why.
    pub cause: Cow<'static, str>,
}
