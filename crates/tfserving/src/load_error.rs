//! Why an engine could not load a version, and whose fault that is.

use outrigger_core::{Failure, Reason};
use tonic::Code;

/// Why the engine could not load a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code:?}: {message}")]
pub struct LoadError {
    /// The status the engine reports of the version.
    pub code: Code,
    /// What the engine said, cut to a sensible length.
    pub message: String,
}

impl LoadError {
    /// The stable reason: `IMAGE_INVALID` where the model itself is at fault and
    /// another try would end the same way, otherwise something that may pass.
    ///
    /// The codes are those of TensorFlow's SavedModel loader: a file that is not
    /// there and an operation nobody registered are both `NOT_FOUND`, what is too
    /// short is `OUT_OF_RANGE`, what fails its checksum is `DATA_LOSS`.
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
            // Of the engine's situation, or of nothing in particular.
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

    /// What everybody else is told.
    pub fn failure(&self) -> Failure {
        Failure::new(self.reason(), format!("the engine could not load it: {self}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_model_itself_is_at_fault_for_is_held_against_it() {
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
