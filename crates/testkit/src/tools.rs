//! Programs that tests run and that cargo cannot install; scripts/install-test-tools installs them.

use std::{env, io};

/// The result of running a program; `None` if it is not installed. In that case a message is
/// printed, and the test must skip the work that needs the program.
///
/// # Panics
/// The program is not installed and `CI` is set: CI installs all of them.
pub fn if_installed<T>(program: &str, ran: io::Result<T>) -> Option<T> {
    installed_or_skip(program, ran, env::var_os("CI").is_some_and(|ci| !ci.is_empty()))
}

fn installed_or_skip<T>(program: &str, ran: io::Result<T>, must: bool) -> Option<T> {
    let missing = |error| format!("{program} cannot be run ({error}): scripts/install-test-tools");
    match ran.map_err(missing) {
        Ok(ran) => Some(ran),
        Err(missing) if must => panic!("{missing}"),
        Err(missing) => {
            eprintln!("skipped: {missing}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn missing(must: bool) -> Option<()> {
        installed_or_skip("nothing", Command::new("/nonexistent/nothing").status().map(drop), must)
    }

    #[test]
    fn a_missing_program_is_skipped() {
        assert_eq!(missing(false), None);
        assert_eq!(installed_or_skip("something", Ok(1), true), Some(1));
    }

    #[test]
    #[should_panic(expected = "nothing cannot be run (No such file or directory")]
    fn a_missing_program_is_a_failure_in_ci() {
        missing(true);
    }
}
