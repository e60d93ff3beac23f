//! The one table of errors: stable reason -> gRPC status, HTTP status, retry.

use std::fmt;

use serde::{Deserialize, Serialize};

/// gRPC status codes that Outrigger answers with; the numbers are gRPC's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Code {
    Cancelled = 1,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// The advice to a caller about retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// The same request will fail again.
    Never,
    /// Try again, with backoff.
    Backoff,
    /// Try again after the delay that the answer carries (RetryInfo).
    AfterDelay,
    /// Try again only after space was freed.
    Later,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $code:ident, $retry:ident;)*) => {
        /// The reason of a failure: the stable name in answers, logs and metrics.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason {
            $($(#[doc = $doc])+ #[serde(rename = $name)] $variant,)*
        }

        impl Reason {
            /// Every reason, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The stable name, as in `google.rpc.ErrorInfo.reason`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The reason with this stable name.
            pub fn named(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }

            /// The gRPC status code.
            pub const fn code(self) -> Code {
                match self { $(Self::$variant => Code::$code,)* }
            }

            /// The advice to the caller about retries.
            pub const fn retry(self) -> Retry {
                match self { $(Self::$variant => Retry::$retry,)* }
            }

            /// The meaning, for the reference page.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+),)* }
            }
        }
    };
}

reasons! {
    /// No model of this name is configured, and no repository holds one.
    ModelNotFound = "MODEL_NOT_FOUND", NotFound, Never;
    /// The model's image has no such tag.
    TagNotFound = "TAG_NOT_FOUND", NotFound, Never;
    /// The model's repository has no such digest.
    DigestNotFound = "DIGEST_NOT_FOUND", NotFound, Never;
    /// No canary of this model is on trial.
    CanaryNotFound = "CANARY_NOT_FOUND", NotFound, Never;
    /// The canary can no longer be aborted: the live tag names it already.
    CanaryPromoted = "CANARY_PROMOTED", FailedPrecondition, Never;
    /// The image's label `dev.outrigger.canary` cannot be used: the canary is not tried.
    CanaryInvalid = "CANARY_INVALID", FailedPrecondition, Never;
    /// The image's reference is not under `images.allowed`.
    ImageNotAllowed = "IMAGE_NOT_ALLOWED", PermissionDenied, Never;
    /// The image is not a valid model package: layer, metadata.json, model files or signature.
    ImageInvalid = "IMAGE_INVALID", FailedPrecondition, Never;
    /// The image is not signed, but `images.signatures` requires a signature; the check is
    /// repeated.
    SignatureMissing = "SIGNATURE_MISSING", FailedPrecondition, Never;
    /// No key of `images.signatures` verifies a signature of the image; the check is repeated.
    SignatureInvalid = "SIGNATURE_INVALID", FailedPrecondition, Never;
    /// The model does not score its golden requests as expected, fails a first request, or scores a
    /// request differently in a batch.
    GoldenMismatch = "GOLDEN_MISMATCH", FailedPrecondition, Never;
    /// The engine ended again and again while it loaded or ran this version, which is not loaded
    /// any more.
    ModelQuarantined = "MODEL_QUARANTINED", FailedPrecondition, Never;
    /// Another version of the model is loaded, and `models[].rollover` allows one at a time.
    VersionExcluded = "VERSION_EXCLUDED", FailedPrecondition, Never;
    /// A required feature was not sent.
    FeatureMissing = "FEATURE_MISSING", InvalidArgument, Never;
    /// A feature's value has the wrong type.
    FeatureType = "FEATURE_TYPE", InvalidArgument, Never;
    /// A vector feature has the wrong number of values.
    FeatureLength = "FEATURE_LENGTH", InvalidArgument, Never;
    /// A feature's value is NaN or infinite and the model does not allow that.
    FeatureNotFinite = "FEATURE_NOT_FINITE", InvalidArgument, Never;
    /// The request is not valid, or contradicts itself.
    RequestMalformed = "REQUEST_MALFORMED", InvalidArgument, Never;
    /// The request has more treatments than the server accepts.
    TooManyTreatments = "TOO_MANY_TREATMENTS", InvalidArgument, Never;
    /// The message, or a part of a file, is larger than the server accepts.
    TooLarge = "TOO_LARGE", InvalidArgument, Never;
    /// There is no such file in the directory for validation.
    FileNotFound = "FILE_NOT_FOUND", NotFound, Never;
    /// The file for scores exists, and the request does not ask to replace it.
    FileExists = "FILE_EXISTS", FailedPrecondition, Never;
    /// The file cannot be read, is not of the format that its name states, or cannot be written.
    FileInvalid = "FILE_INVALID", FailedPrecondition, Never;
    /// The model's output has the wrong count, shape or type, or is not finite.
    ScoresInvalid = "SCORES_INVALID", Internal, Never;
    /// The model is being pulled or loaded; the answer has the delay before a retry.
    ModelLoading = "MODEL_LOADING", Unavailable, AfterDelay;
    /// The registry does not answer, or answers with a server error.
    RegistryUnavailable = "REGISTRY_UNAVAILABLE", Unavailable, Backoff;
    /// The registry refuses our credentials.
    RegistryDenied = "REGISTRY_DENIED", FailedPrecondition, Never;
    /// The engine does not answer.
    EngineUnavailable = "ENGINE_UNAVAILABLE", Unavailable, Backoff;
    /// No engine, or more than one, runs models of this framework: `models[].engine` names one.
    EngineNotChosen = "ENGINE_NOT_CHOSEN", FailedPrecondition, Never;
    /// The model itself failed in the engine.
    EngineFailed = "ENGINE_FAILED", Internal, Never;
    /// The model has no contributions to explain its scores by: its engine computes none, or its file
    /// lacks what they are computed from.
    ContributionsUnsupported = "CONTRIBUTIONS_UNSUPPORTED", Unimplemented, Never;
    /// The limit of concurrent requests is reached.
    Overloaded = "OVERLOADED", ResourceExhausted, Backoff;
    /// The model store is full and everything in it is in use.
    StoreFull = "STORE_FULL", ResourceExhausted, Later;
    /// There is not enough memory to load the model.
    MemoryFull = "MEMORY_FULL", ResourceExhausted, Later;
    /// The caller's deadline passed.
    Deadline = "DEADLINE", DeadlineExceeded, Never;
    /// The call requires a bearer token or a client certificate, or the sent token is not known.
    Unauthenticated = "UNAUTHENTICATED", Unauthenticated, Never;
    /// The caller is known, and does not have the right to make the call.
    PermissionDenied = "PERMISSION_DENIED", PermissionDenied, Never;
    /// This listener does not serve the call: changes go to the admin listener.
    AdminOnly = "ADMIN_ONLY", PermissionDenied, Never;
    /// There is no such method or path (over HTTP: 404, or 405 for the wrong verb).
    MethodUnknown = "METHOD_UNKNOWN", Unimplemented, Never;
    /// The request is compressed with an encoding that is not accepted, or with several (over HTTP:
    /// 415).
    EncodingUnsupported = "ENCODING_UNSUPPORTED", Unimplemented, Never;
    /// The server is stopping.
    ShuttingDown = "SHUTTING_DOWN", Unavailable, Backoff;
    /// A defect in Outrigger.
    Internal = "INTERNAL", Internal, Never;
}

impl Code {
    /// The matching HTTP status.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::InvalidArgument => 400,
            Self::Unauthenticated => 401,
            Self::PermissionDenied => 403,
            Self::NotFound => 404,
            Self::FailedPrecondition => 409,
            Self::ResourceExhausted => 429,
            Self::Cancelled => 499,
            Self::Internal => 500,
            Self::Unimplemented => 501,
            Self::Unavailable => 503,
            Self::DeadlineExceeded => 504,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_named_once_and_in_upper_case() {
        let mut names: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        let upper = |name: &&str| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        assert!(names.iter().all(upper));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Reason::ALL.len());
        assert!(Reason::ALL.iter().all(|reason| Reason::named(reason.as_str()) == Some(*reason)));
        assert_eq!(Reason::named("internal"), None);
    }

    #[test]
    fn only_unavailable_and_exhausted_ask_for_a_retry() {
        for reason in Reason::ALL {
            let transient = matches!(reason.code(), Code::Unavailable | Code::ResourceExhausted);
            assert_eq!(reason.retry() != Retry::Never, transient, "{reason}");
        }
    }
}
