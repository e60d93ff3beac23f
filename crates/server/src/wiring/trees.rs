//! Engines of the kind `trees`, in this process.

use std::sync::Arc;

use outrigger_forest::{XGBOOST, engine};

use crate::config::Kind;

/// The kind of the engine for tree models.
pub(super) fn kind() -> Kind {
    Kind::in_process("trees", vec![XGBOOST], |budget| Arc::new(engine(budget)))
}
