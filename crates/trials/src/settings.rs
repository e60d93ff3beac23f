//! The settings of a trial: the image's label, with configured defaults below it and overrides
//! above it.

use std::sync::Arc;

use outrigger_canary::{LABEL, Layer, Settings};
use outrigger_core::{Failure, ModelKey, Reason, machines::TagKey};

use crate::{
    config::CanaryDefaults,
    context::{Context, PackageFacts},
    pair::Pair,
    profile::Profiled,
};

/// The facts about live and the canary that determine the trial's settings.
pub(crate) struct Packages {
    live: PackageFacts,
    canary: PackageFacts,
}

impl Packages {
    pub(crate) fn of(key: &TagKey, pair: Pair, cx: &dyn Context) -> Self {
        let package = |digest| cx.package(&ModelKey { name: key.name.clone(), digest });
        Self { live: package(pair.live), canary: package(pair.canary) }
    }

    /// The settings of the canary's trial.
    ///
    /// # Errors
    /// CANARY_INVALID, with all faults.
    pub(crate) fn settings(&self, config: &CanaryDefaults) -> Result<Settings, Failure> {
        let label = self.canary.label.as_deref().map(Layer::from_label).transpose();
        let settings = label.and_then(|label| {
            let layer = config.defaults.clone().under(&label.unwrap_or_default());
            Settings::try_from(&layer.under(&config.overrides).message())
        });
        let profile = self.canary.profile.as_ref().map(|it| Arc::clone(&it.profile));
        let draws = self.canary.draws || self.live.draws;
        let settings = settings.and_then(|settings| settings.against(profile));
        let settings = settings.and_then(|it| if draws { it.of_distributions() } else { Ok(it) });
        settings
            .map_err(|error| Failure::new(Reason::CanaryInvalid, format!("label {LABEL}: {error}")))
    }

    /// The profiles of live and of the canary.
    pub(crate) fn into_profiles(self) -> [Option<Arc<Profiled>>; 2] {
        [self.live.profile, self.canary.profile]
    }
}
