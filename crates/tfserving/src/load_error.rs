//! Load failures of an engine, and their classification by cause.

use outrigger_core::{Failure, Reason};
use tonic::Code;

/// The failure of an engine to load a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code:?}: {message}")]
pub struct LoadError {
    /// The status code that the engine reports for the version.
    pub code: Code,
    /// The engine's message, shortened.
    pub message: String,
}

impl LoadError {
    /// The stable reason: `IMAGE_INVALID` if the model itself is at fault and another attempt would
    /// end the same way, otherwise a reason that may pass.
    ///
    /// The codes come from TensorFlow's SavedModel loader: a missing file and an unregistered
    /// operation are both `NOT_FOUND`, a file that is too short is `OUT_OF_RANGE`, and a wrong
    /// checksum is `DATA_LOSS`.
    pub fn reason(&self) -> Reason {
        match self.code {
            Code::NotFound
            | Code::OutOfRange
            | Code::DataLoss
            | Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::AlreadyExists
            | Code::Unimplemented => Reason::ImageInvalid,
            Code::ResourceExhausted => Reason::MemoryFull,
            // These codes result from the engine's situation, or have no known cause.
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::PermissionDenied
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable
            | Code::Unauthenticated => Reason::EngineFailed,
        }
    }

    /// The failure in the form that callers and the model's state receive.
    pub fn failure(&self) -> Failure {
        Failure::new(self.reason(), format!("the engine could not load it: {self}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_the_model_itself_are_permanent() {
        let reason = |code| LoadError { code, message: String::new() }.reason();
        let codes: Vec<_> = (0..=16).map(Code::from_i32).collect();
        let with = |wanted: Reason| -> Vec<_> {
            codes
                .iter()
                .copied()
                .filter(|code| reason(*code) == wanted)
                .map(|it| it as i32)
                .collect()
        };
        assert_eq!(with(Reason::ImageInvalid), [3, 5, 6, 9, 11, 12, 15]);
        assert_eq!(with(Reason::MemoryFull), [8]);
        assert_eq!(with(Reason::EngineFailed), [0, 1, 2, 4, 7, 10, 13, 14, 16]);
    }
}
