//! The library's errors as failures.

use std::error::Error as Cause;

use object_store::{Error, client::HttpError};

use super::{super::objects::Failure, http::Verdict};

/// The codes of answers that look like a success and say that the store may answer later.
const LATER: [&str; 2] = ["InternalError", "SlowDown"];

/// The failure that an error stands for.
pub(super) fn failure(error: Error) -> Failure {
    if let Some(found) = judged(&error) {
        return found;
    }
    match error {
        Error::NotFound { .. } => Failure::Absent,
        Error::AlreadyExists { .. } => Failure::Exists,
        Error::Precondition { .. } | Error::NotModified { .. } => Failure::Changed,
        error => {
            let message = error.to_string();
            match LATER.iter().any(|code| message.contains(code)) {
                true => Failure::Away(message),
                false => Failure::Other(message),
            }
        }
    }
}

/// The failure of the HTTP client that has caused an error.
fn judged(error: &Error) -> Option<Failure> {
    let mut cause: Option<&(dyn Cause + 'static)> = Some(error);
    while let Some(it) = cause {
        match it.downcast_ref::<Verdict>() {
            Some(Verdict::Away(status)) => return Some(Failure::Away(status.clone())),
            Some(Verdict::Refused(status)) => return Some(Failure::Refused(status.clone())),
            // The library's own error of a list does not have this kind.
            Some(Verdict::NoBucket) => return Some(Failure::Absent),
            None => {}
        }
        let is_last = it.downcast_ref::<HttpError>().is_some()
            && it.source().is_none_or(|source| source.downcast_ref::<Verdict>().is_none());
        if is_last {
            return Some(Failure::Away(root(it)));
        }
        cause = it.source();
    }
    None
}

/// The text of the last cause of an error.
fn root(error: &(dyn Cause + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
