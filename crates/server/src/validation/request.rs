//! The request of a run.

use std::path::{Component, Path, PathBuf};

use outrigger_core::{Failure, Reason};
use outrigger_proto::outrigger::v1::ValidateFileRequest;
use outrigger_validation::{Files, Format, Memory, Options, Reserved, Root, Tolerance};

use crate::routing::invalid;

/// The most bytes of a path.
const MOST_BYTES: usize = 1024;
/// The most errors of a run that goes on: its rows are held until those of their user are read.
const MOST_ERRORS: u32 = 10_000;

/// Reads a request for files below `directory`.
///
/// # Errors
/// It is not valid, or the directory cannot be opened.
pub(super) fn read(
    request: ValidateFileRequest,
    directory: &Path,
    memory: Memory,
) -> Result<(Files, Options), Failure> {
    let (input, format) = path("input", &request.input)?;
    let scores = Some(&request.scores).filter(|scores| !scores.is_empty());
    let scores = scores.map(|scores| path("scores", scores)).transpose()?;
    if scores.as_ref().is_some_and(|(_, of)| *of != format) {
        return Err(invalid("scores", "must have the format of input"));
    }
    let scores = scores.map(|(scores, _)| scores);
    if scores.as_ref().is_some_and(|scores| is_same(scores, &input)) {
        return Err(invalid("scores", "must not be the input"));
    }
    let options = Options {
        reserved: reserved(&request)?,
        tolerance: tolerance(&request)?,
        max_errors: max_errors(&request)?,
        memory,
        ..Options::default()
    };
    let root = Root::below(directory).map_err(|error| {
        let message = format!("validation.directory, {}: {error}", directory.display());
        Failure::new(Reason::FileInvalid, message)
    })?;
    Ok((Files { root, input, format, scores, overwrite: request.overwrite }, options))
}

/// A path with the format that its name states.
fn path(field: &str, text: &str) -> Result<(PathBuf, Format), Failure> {
    if text.len() > MOST_BYTES {
        return Err(invalid(field, &format!("must have at most {MOST_BYTES} bytes")));
    }
    let path = PathBuf::from(text);
    let format = Format::of(&path).ok_or_else(|| {
        invalid(field, &format!("the name must end with one of {}", Format::endings()))
    })?;
    Ok((path, format))
}

/// True if both paths lead to the same file; without symbolic links their names decide.
fn is_same(one: &Path, other: &Path) -> bool {
    let names = |path: &Path| -> PathBuf {
        path.components().filter(|part| *part != Component::CurDir).collect()
    };
    names(one) == names(other)
}

fn reserved(request: &ValidateFileRequest) -> Result<Reserved, Failure> {
    let usual = Reserved::default();
    let name = |given: &String, usual| if given.is_empty() { usual } else { given.clone() };
    let reserved = Reserved {
        user: name(&request.user_column, usual.user),
        treatment: name(&request.treatment_column, usual.treatment),
        expected: name(&request.expected_column, usual.expected),
    };
    match reserved.check() {
        Ok(()) => Ok(reserved),
        Err(error) => Err(Failure::new(Reason::RequestMalformed, error.to_string())),
    }
}

fn tolerance(request: &ValidateFileRequest) -> Result<Tolerance, Failure> {
    let usual = Tolerance::default();
    let tolerance = |field, given: Option<f64>, usual| match given {
        Some(value) if !(value >= 0.0 && value.is_finite()) => {
            Err(invalid(field, "must be a number that is not negative"))
        }
        given => Ok(given.unwrap_or(usual)),
    };
    let atol = tolerance("atol", request.atol, usual.atol)?;
    Ok(Tolerance { atol, rtol: tolerance("rtol", request.rtol, usual.rtol)? })
}

fn max_errors(request: &ValidateFileRequest) -> Result<usize, Failure> {
    match request.max_errors {
        None => Ok(Options::default().max_errors),
        Some(most) if most <= MOST_ERRORS => Ok(most as usize),
        Some(_) => Err(invalid("max_errors", &format!("must be at most {MOST_ERRORS}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(change: impl FnOnce(&mut ValidateFileRequest)) -> Result<(Files, Options), Failure> {
        let mut request = ValidateFileRequest {
            input: "rows.csv".to_owned(),
            scores: "scores.csv".to_owned(),
            ..ValidateFileRequest::default()
        };
        change(&mut request);
        read(request, &std::env::temp_dir(), Memory::default())
    }

    #[test]
    fn omitted_settings_have_the_defaults_of_the_command() {
        let (files, options) = asked(|_| {}).expect("valid");
        assert_eq!(options, Options::default());
        assert!(!files.overwrite && files.scores.is_some());
        let (files, options) = asked(|request| {
            request.scores.clear();
            request.user_column = "customer".to_owned();
            (request.atol, request.max_errors) = (Some(0.5), Some(0));
        })
        .expect("valid");
        assert_eq!((files.scores, options.max_errors, options.tolerance.atol), (None, 0, 0.5));
        assert_eq!(options.reserved.user, "customer");
    }

    #[test]
    fn settings_that_are_not_valid_are_refused() {
        type Change = fn(&mut ValidateFileRequest);
        let wrong: [(Change, &str); 9] = [
            (|it| it.input = format!("{}.csv", "x".repeat(2000)), "input: must have"),
            (|it| it.input = "rows.txt".to_owned(), "input: "),
            (|it| it.input.clear(), "input: "),
            (|it| it.scores = "scores.jsonl".to_owned(), "scores: must have the format"),
            (|it| it.scores = "./rows.csv".to_owned(), "scores: must not be"),
            (|it| it.rtol = Some(-1.0), "rtol: "),
            (|it| it.atol = Some(f64::NAN), "atol: "),
            (|it| it.max_errors = Some(1_000_000), "max_errors: "),
            (|it| it.user_column = "score".to_owned(), "two columns"),
        ];
        for (change, message) in wrong {
            let failure = asked(change).expect_err(message);
            assert_eq!(failure.reason, Reason::RequestMalformed);
            assert!(failure.message.starts_with(message), "{failure}");
        }
    }
}
