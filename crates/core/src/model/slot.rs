//! The right of a version to be in the engine.

/// The right of a version to be in the engine. A model whose rollover is `replace` has one slot in
/// the engine, which one of its versions has; the versions of other models all have a free one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Slot {
    /// The version may be in the engine.
    #[default]
    Free,
    /// It may be in the engine, in place of a version that is loaded again if this one fails.
    Replacing,
    /// It may be prepared. It is published when no other version of the model is in the engine.
    Next,
    /// Another version has the slot, or is the next to get it.
    Taken,
}

impl Slot {
    /// True if the version may be in the engine.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Free | Self::Replacing)
    }
}
