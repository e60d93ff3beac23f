use std::time::Duration;

use outrigger_budget::Budget;
use outrigger_compression::Level;
use outrigger_trace::Span;
use tokio::{runtime::Handle, time::Instant};

use super::*;
use crate::{call::Call, front::Method, grpc::FRONT, heavy::Heavy, held::Held};

fn headers(name: &HeaderName, value: &'static str) -> HeaderMap {
    [(name.clone(), HeaderValue::from_static(value))].into_iter().collect()
}

#[test]
fn the_setting_decides_on_requests_and_answers() {
    for (setting, requests, answers) in [
        (Compression::None, false, false),
        (Compression::Requests, true, false),
        (Compression::Both, true, true),
    ] {
        for names in [&GRPC, &HTTP] {
            let policy = Policy::new(setting, names);
            let request = policy.request(&headers(&names.encoding, "gzip"));
            assert_eq!(request.is_ok_and(|it| it == Some(Encoding::Gzip)), requests, "{setting:?}");
            let answer = policy.answer(&headers(&names.accepted, "gzip"));
            assert_eq!(answer.is_some(), answers, "{setting:?}");
            assert_eq!(policy.varies(), answers);
            for none in [headers(&names.encoding, "identity"), HeaderMap::new()] {
                assert_eq!(policy.request(&none).unwrap(), None, "{setting:?}");
                assert_eq!(policy.answer(&none), None, "{setting:?}");
            }
        }
    }
}

#[test]
fn a_refusal_names_the_accepted_encodings() {
    for (setting, accepted) in
        [(Compression::None, "identity"), (Compression::Requests, "identity, gzip, zstd, deflate")]
    {
        for names in [&GRPC, &HTTP] {
            let policy = Policy::new(setting, names);
            let failure = policy.request(&headers(&names.encoding, "br")).unwrap_err();
            assert_eq!(failure.reason, Reason::EncodingUnsupported);
            assert!(failure.message.contains(accepted), "{}", failure.message);
            let mut answer = HeaderMap::new();
            policy.explain(&failure, &mut answer);
            assert_eq!(answer[&names.accepted], accepted);
        }
    }
    let mut answer = HeaderMap::new();
    let other = Failure::new(Reason::TooLarge, "");
    Policy::new(Compression::Both, &HTTP).explain(&other, &mut answer);
    assert!(answer.is_empty());
}

/// A call on `budget` whose time is over after `time`.
fn call(budget: &Budget, time: Duration) -> Call {
    let now = Instant::now();
    let call = Call::begin(&FRONT, Method::Predict, now, now + time, Span::none());
    call.seat(Held::on(budget));
    call
}

fn compressed(encoding: Encoding, message: &[u8]) -> Bytes {
    let mut compressed = Vec::new();
    outrigger_compression::compress(encoding, Level::Usual, message, &mut compressed).unwrap();
    compressed.into()
}

#[tokio::test]
async fn a_request_is_charged_for_its_decompressed_bytes_in_the_end() {
    let heavy = Heavy::on(&Handle::current());
    // The last two take more work than is light.
    for length in [0, 1, 70_000, 3 << 20, 20 << 20] {
        for encoding in Encoding::ALL {
            let budget = Budget::new(512 << 20);
            let call = call(&budget, Duration::from_secs(3600));
            let body = compressed(encoding, &vec![7; length]);
            call.held().receive(body.len(), None).unwrap();
            let message = decompress(&call, &heavy, encoding, body, 20 << 20).await.unwrap();
            assert_eq!(message.len(), length);
            assert_eq!(budget.requests.used(), message.capacity() as u64, "{encoding:?}");
        }
    }
}

#[tokio::test]
async fn decompression_ends_with_the_time_and_the_room_of_its_call() {
    let heavy = Heavy::on(&Handle::current());
    for (memory, time, expected) in [
        (1 << 30, Duration::ZERO, Reason::Deadline),
        (256 << 20, Duration::from_secs(3600), Reason::TooLarge),
    ] {
        for encoding in Encoding::ALL {
            let call = call(&Budget::new(memory), time);
            let body = compressed(encoding, &vec![7; 60 << 20]);
            let failure = decompress(&call, &heavy, encoding, body, 60 << 20).await.unwrap_err();
            assert_eq!(failure.reason, expected, "{encoding:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_is_charged_for_the_form_that_is_sent() {
    let heavy = Heavy::on(&Handle::current());
    // 25.6 MiB of answers, half of it for one caller.
    let budget = Budget::new(256 << 20);
    let call = call(&budget, Duration::from_secs(3600));
    for (length, pays) in [(1400, false), (1401, true), (1 << 20, true), (12 << 20, false)] {
        for encoding in Encoding::ALL {
            call.charge_answer(length as u64).unwrap();
            let answer = vec![b' '; length].into();
            let sent = compress(&call, &heavy, encoding, answer, 5).await;
            assert_eq!(sent.is_some(), pays, "{length} bytes, {encoding:?}");
            let charged = sent.map_or(length, |sent| sent.capacity());
            assert_eq!(budget.answers.used(), charged as u64);
        }
    }
}
