//! Engines of the kind `trees`, in this process.

use std::sync::Arc;

use outrigger_forest::{FRAMEWORKS, engine};

use crate::config::Kind;

/// The kind of the engine for tree models.
pub(super) fn kind() -> Kind {
    Kind::in_process("trees", FRAMEWORKS.into(), |budget| Arc::new(engine(budget)))
}
