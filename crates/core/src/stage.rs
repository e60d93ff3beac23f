//! The stages of a version of a model.

use std::fmt;

/// The stage of a version of a model, as API and metrics show it. The work inside a stage is its
/// activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Known; nothing usable on disk.
    New,
    /// Verified files are in the store.
    Downloaded,
    /// In the engine's configuration.
    Loaded,
    /// The engine serves it and it passed the gate.
    Available,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 4] = [Self::New, Self::Downloaded, Self::Loaded, Self::Available];

    /// The stable name, for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Downloaded => "downloaded",
            Self::Loaded => "loaded",
            Self::Available => "available",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
