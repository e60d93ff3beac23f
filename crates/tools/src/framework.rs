//! The framework of a package, among those that a command knows.

use outrigger_core::{Failure, Reason, UnknownFramework};
use outrigger_run::Framework;

/// The framework called `name`.
pub(crate) fn framework(known: &[Framework], name: &str) -> Result<Framework, Failure> {
    let found = known.iter().find(|it| it.name == name).copied();
    found.ok_or_else(|| {
        let known = known.iter().map(|it| it.name).collect();
        let unknown = UnknownFramework { framework: name.to_owned(), known };
        Failure::new(Reason::EngineNotChosen, unknown.to_string())
    })
}
