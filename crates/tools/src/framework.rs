//! The framework of a package, among those that a command knows.

use outrigger_core::{Failure, PackageLayout, Reason};
use outrigger_run::Framework;

/// The framework called `name`.
pub(crate) fn framework(known: &[Framework], name: &str) -> Result<Framework, Failure> {
    let found = known.iter().find(|it| it.name == name).copied();
    found.ok_or_else(|| {
        let known: Vec<_> = known.iter().map(|it| it.name).collect();
        let known = known.join(", ");
        let message = format!("no engine runs models of {name}; known frameworks: {known}");
        Failure::new(Reason::EngineNotChosen, message)
    })
}

/// The places where packages of `frameworks` have their model.
pub(crate) fn layouts(frameworks: &[Framework]) -> Vec<PackageLayout> {
    frameworks.iter().map(|framework| framework.layout).collect()
}
