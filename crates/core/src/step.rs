//! What is being done with a version of a model.

/// What is being done with a version, on its way into service and out of it again.
/// One that rests, or serves, is in no step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Its files are got from the registry.
    Pull,
    /// Its metadata and signature are read.
    Prepare,
    /// It is put where the engine finds it.
    Publish,
    /// The engine loads it.
    Load,
    /// It passes the gate.
    Gate,
    /// Requests that have it are waited for.
    Drain,
    /// The engine unloads it.
    Unload,
    /// Its files are deleted.
    Delete,
}

impl Step {
    /// Every step, in order.
    pub const ALL: [Self; 8] = [
        Self::Pull,
        Self::Prepare,
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
            Self::Publish => "publish",
            Self::Load => "load",
            Self::Gate => "gate",
            Self::Drain => "drain",
            Self::Unload => "unload",
            Self::Delete => "delete",
        }
    }

    /// Whether it leads into service.
    pub fn leads_up(self) -> bool {
        self <= Self::Gate
    }
}
