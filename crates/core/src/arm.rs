//! Which side of a canary split answers.

use std::fmt;

/// Which side of a canary split answered a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arm {
    /// The tag asked for.
    Live,
    /// The canary of the tag asked for.
    Canary,
    /// A digest, or a canary tag by its own name: never split.
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
