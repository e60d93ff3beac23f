//! The configuration of trials.

use outrigger_canary::Layer;

/// How canaries are tried.
#[derive(Debug, Clone, PartialEq)]
pub struct CanaryDefaults {
    /// Whether canaries are looked for.
    pub enabled: bool,
    /// Settings under an image's label: they hold where the label says nothing.
    pub defaults: Layer,
    /// Settings over an image's label: they hold whatever the label says.
    pub overrides: Layer,
}

impl Default for CanaryDefaults {
    fn default() -> Self {
        Self { enabled: true, defaults: Layer::default(), overrides: Layer::default() }
    }
}
