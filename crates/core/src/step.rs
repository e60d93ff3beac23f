//! The steps of a version into service and out of it.

/// The step under way for a version, into service or out of it. An idle or serving version is in no
/// step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Its files are pulled from the registry.
    Pull,
    /// Its metadata, and the interface of its model, are read.
    Prepare,
    /// Another version of its model leaves the engine, in which there is room for one.
    Replace,
    /// Its files are put where the engine finds them.
    Publish,
    /// The engine loads it.
    Load,
    /// The gate checks it.
    Gate,
    /// Requests that use it are completed.
    Drain,
    /// The engine unloads it.
    Unload,
    /// Its files are deleted.
    Delete,
}

impl Step {
    /// Every step, in order.
    pub const ALL: [Self; 9] = [
        Self::Pull,
        Self::Prepare,
        Self::Replace,
        Self::Publish,
        Self::Load,
        Self::Gate,
        Self::Drain,
        Self::Unload,
        Self::Delete,
    ];

    /// The stable name, for metrics and traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::Prepare => "prepare",
            Self::Replace => "replace",
            Self::Publish => "publish",
            Self::Load => "load",
            Self::Gate => "gate",
            Self::Drain => "drain",
            Self::Unload => "unload",
            Self::Delete => "delete",
        }
    }

    /// Whether the step leads into service.
    pub fn leads_up(self) -> bool {
        self <= Self::Gate
    }
}
