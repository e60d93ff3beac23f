use super::*;

/// The gRPC code and HTTP status of every reason: the contract with callers, in one place.
const TABLE: &[(Reason, Code, u16)] = &[
    (Reason::ModelNotFound, Code::NotFound, 404),
    (Reason::TagNotFound, Code::NotFound, 404),
    (Reason::DigestNotFound, Code::NotFound, 404),
    (Reason::CanaryNotFound, Code::NotFound, 404),
    (Reason::CanaryPromoted, Code::FailedPrecondition, 409),
    (Reason::CanaryInvalid, Code::FailedPrecondition, 409),
    (Reason::ImageNotAllowed, Code::PermissionDenied, 403),
    (Reason::ImageInvalid, Code::FailedPrecondition, 409),
    (Reason::SignatureMissing, Code::FailedPrecondition, 409),
    (Reason::SignatureInvalid, Code::FailedPrecondition, 409),
    (Reason::GoldenMismatch, Code::FailedPrecondition, 409),
    (Reason::ModelQuarantined, Code::FailedPrecondition, 409),
    (Reason::VersionExcluded, Code::FailedPrecondition, 409),
    (Reason::FeatureMissing, Code::InvalidArgument, 400),
    (Reason::FeatureType, Code::InvalidArgument, 400),
    (Reason::FeatureLength, Code::InvalidArgument, 400),
    (Reason::FeatureNotFinite, Code::InvalidArgument, 400),
    (Reason::RequestMalformed, Code::InvalidArgument, 400),
    (Reason::TooManyTreatments, Code::InvalidArgument, 400),
    (Reason::TooLarge, Code::InvalidArgument, 400),
    (Reason::FileNotFound, Code::NotFound, 404),
    (Reason::FileExists, Code::FailedPrecondition, 409),
    (Reason::FileInvalid, Code::FailedPrecondition, 409),
    (Reason::ScoresInvalid, Code::Internal, 500),
    (Reason::ModelLoading, Code::Unavailable, 503),
    (Reason::RegistryUnavailable, Code::Unavailable, 503),
    (Reason::RegistryDenied, Code::FailedPrecondition, 409),
    (Reason::EngineUnavailable, Code::Unavailable, 503),
    (Reason::EngineNotChosen, Code::FailedPrecondition, 409),
    (Reason::EngineFailed, Code::Internal, 500),
    (Reason::ContributionsUnsupported, Code::Unimplemented, 501),
    (Reason::Overloaded, Code::ResourceExhausted, 429),
    (Reason::StoreFull, Code::ResourceExhausted, 429),
    (Reason::MemoryFull, Code::ResourceExhausted, 429),
    (Reason::Deadline, Code::DeadlineExceeded, 504),
    (Reason::Unauthenticated, Code::Unauthenticated, 401),
    (Reason::PermissionDenied, Code::PermissionDenied, 403),
    (Reason::AdminOnly, Code::PermissionDenied, 403),
    (Reason::MethodUnknown, Code::Unimplemented, 501),
    (Reason::EncodingUnsupported, Code::Unimplemented, 501),
    (Reason::ShuttingDown, Code::Unavailable, 503),
    (Reason::Internal, Code::Internal, 500),
];

#[test]
fn every_reason_has_the_status_of_the_table() {
    let listed: Vec<_> = TABLE.iter().map(|(reason, ..)| *reason).collect();
    assert_eq!(listed, Reason::ALL);
    for (reason, code, http) in TABLE {
        let failure = Failure::new(*reason, "what happened");
        let status = to_status(&failure);
        assert_eq!((status.code(), status.message()), (*code, "what happened"), "{reason}");
        let info = status.get_details_error_info().expect("always there");
        assert_eq!((info.reason.as_str(), info.domain.as_str()), (reason.as_str(), DOMAIN));
        assert_eq!(to_http(&failure).status().as_u16(), *http, "{reason}");
    }
}

#[test]
fn retryable_failures_carry_a_delay() {
    for reason in Reason::ALL {
        let failure = Failure::new(*reason, "");
        let retried = reason.retry() != Retry::Never;
        let info = to_status(&failure).get_details_retry_info();
        assert_eq!(info.is_some_and(|info| info.retry_delay.is_some()), retried, "{reason}");
        assert_eq!(to_http(&failure).headers().contains_key(RETRY_AFTER), retried, "{reason}");
    }
    let loading =
        Failure::new(Reason::ModelLoading, "soon").retry_after(Duration::from_millis(1500));
    let info = to_status(&loading).get_details_retry_info().unwrap();
    assert_eq!(info.retry_delay, Some(Duration::from_millis(1500)));
    assert_eq!(to_http(&loading).headers()[RETRY_AFTER], "2");
    assert_eq!(to_json(&loading)["error"]["details"]["retry_after_ms"], 1500);
}

#[test]
fn fields_at_fault_are_named() {
    let failure = Failure::new(Reason::FeatureType, "a feature has the wrong type")
        .violation("treatments[3].features[\"discount\"]", "is text, not a number");
    let bad = to_status(&failure).get_details_bad_request().expect("violations are listed");
    assert_eq!(bad.field_violations[0].field, "treatments[3].features[\"discount\"]");
    assert_eq!(
        to_json(&failure)["error"]["details"]["violations"][0]["description"],
        "is text, not a number"
    );
}

#[test]
fn a_status_with_thousands_of_violations_still_fits_into_headers() {
    let mut failure = Failure::new(Reason::FeatureMissing, "ä".repeat(100_000));
    for treatment in 0..5000 {
        failure = failure.violation(format!("treatments[{treatment}]"), "x".repeat(3000));
    }
    let status = to_status(&failure);
    let response = status.clone().into_http::<axum::body::Body>();
    let size: usize =
        response.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    assert!(size < 8000, "{size} bytes");
    let shown = status.get_details_bad_request().unwrap().field_violations.len();
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.metadata["violations_omitted"], (5000 - shown).to_string());
}

#[test]
fn statuses_about_the_transport_get_reasons() {
    for (code, reason) in [
        (Code::OutOfRange, Reason::TooLarge),
        (Code::Unimplemented, Reason::MethodUnknown),
        (Code::Internal, Reason::RequestMalformed),
        (Code::Unknown, Reason::RequestMalformed),
    ] {
        assert_eq!(of_transport(code, "x").reason, reason);
    }
}
