//! The configuration of trials.

use outrigger_canary::Layer;

/// The configuration of canary trials.
#[derive(Debug, Clone, PartialEq)]
pub struct CanaryDefaults {
    /// True if canary tags are looked for.
    pub enabled: bool,
    /// Settings below an image's label: they apply where the label sets nothing.
    pub defaults: Layer,
    /// Settings above an image's label: they apply whatever the label sets.
    pub overrides: Layer,
}

impl Default for CanaryDefaults {
    fn default() -> Self {
        Self { enabled: true, defaults: Layer::default(), overrides: Layer::default() }
    }
}
