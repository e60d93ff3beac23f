//! The side of a canary split that answers.

use std::fmt;

/// The side of a canary split that answered a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arm {
    /// The live version of the requested tag.
    Live,
    /// The canary of the requested tag.
    Canary,
    /// A request for a digest, or for a canary tag by its own name: never split.
    Pinned,
}

impl Arm {
    /// A stable lower-case name, for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Canary => "canary",
            Self::Pinned => "pinned",
        }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
