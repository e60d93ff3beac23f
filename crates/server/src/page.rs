//! The server as a data source for the page `/ui`.

use std::io;

use axum::response::Response;
use outrigger_budget::Budget;
use outrigger_core::{Failure, ModelName};
use outrigger_lifecycle::{Handle, ModelView};
use outrigger_proto::outrigger::v1::{ListCanariesResponse, Model};
use outrigger_ui as ui;
use serde_json::{Value, json};

use crate::{
    canary_views,
    config::Config,
    cpus, failure,
    health::Readiness,
    metrics::Exposition,
    reload::Reloads,
    views::{History, find, model, model_json},
};

/// The parts of the server that the page shows.
pub(crate) struct Shown {
    models: Handle,
    readiness: Readiness,
    exposition: Exposition,
    reloads: Reloads,
    budget: Budget,
}

impl Shown {
    pub(crate) fn new(
        models: Handle,
        readiness: Readiness,
        exposition: Exposition,
        reloads: Reloads,
        budget: Budget,
    ) -> Self {
        Self { models, readiness, exposition, reloads, budget }
    }
}

impl ui::Server for Shown {
    fn not_ready(&self) -> Option<String> {
        self.readiness.check().err()
    }

    fn last_reload(&self) -> Option<ui::Reload> {
        self.reloads.last().borrow().clone()
    }

    fn write_metrics(&self, to: &mut dyn io::Write) -> io::Result<()> {
        self.budget.record();
        self.exposition.write(to)
    }

    fn model(&self, name: &ModelName, view: &ModelView) -> Model {
        model(name, view, History::Included)
    }

    fn canaries(&self) -> ListCanariesResponse {
        canary_views::list(&self.models.canaries().borrow(), "")
    }

    fn described(&self, name: &str) -> Result<Value, Failure> {
        let (name, view) = find(&self.models, name)?;
        let default = self.models.default_selector(&name).to_string();
        let model = model_json(&name, &view, History::Included);
        Ok(json!({"model": model, "default": default}))
    }

    fn failed(&self, failure: &Failure) -> Response {
        failure::to_http(failure)
    }
}

/// The part of the configuration that the page shows.
pub(crate) fn about(config: &Config) -> ui::About {
    ui::About {
        version: env!("CARGO_PKG_VERSION"),
        repository: config.images.repository.clone(),
        default_tag: config.images.default_tag.to_string(),
        cpus: cpus::detect(config.server.threads),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_reads_metrics_that_exist() {
        let all = crate::metrics::all();
        for name in super::ui::metrics() {
            assert!(all.iter().any(|metric| metric.name == name), "{name} is no metric");
        }
    }
}
