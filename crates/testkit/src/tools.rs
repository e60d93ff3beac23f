//! Programs that tests run and cargo cannot bring: scripts/install-test-tools does.

use std::{env, io};

/// What came of running a program; `None` where it is not there: the test then says so
/// and does nothing.
///
/// # Panics
/// When it is not there and `CI` is set, which has all of them.
pub fn there<T>(program: &str, ran: io::Result<T>) -> Option<T> {
    there_or(program, ran, env::var_os("CI").is_some_and(|ci| !ci.is_empty()))
}

fn there_or<T>(program: &str, ran: io::Result<T>, must: bool) -> Option<T> {
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
        there_or("nothing", Command::new("/nonexistent/nothing").status().map(drop), must)
    }

    #[test]
    fn a_program_that_is_missing_is_done_without() {
        assert_eq!(missing(false), None);
        assert_eq!(there_or("something", Ok(1), true), Some(1));
    }

    #[test]
    #[should_panic(expected = "nothing cannot be run (No such file or directory")]
    fn but_not_where_all_must_be_there() {
        missing(true);
    }
}
