use super::*;

const RECORDED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn headers(traceparent: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(TRACEPARENT, traceparent.parse().unwrap());
    headers
}

fn with_flags(flags: &str) -> String {
    RECORDED.replace("-01", &format!("-{flags}"))
}

#[test]
fn one_flag_says_whether_the_callers_trace_is_recorded() {
    for flags in ["00", "02", "08", "fe"] {
        let text = with_flags(flags);
        assert!(declines(text.as_bytes()), "{flags}");
        assert!(matches!(Caller::of(&headers(&text)), Caller::Declines(_)), "{flags}");
    }
    for flags in ["01", "03", "09", "ff"] {
        let text = with_flags(flags);
        assert!(!declines(text.as_bytes()), "{flags}");
        assert!(matches!(Caller::of(&headers(&text)), Caller::Records(_)), "{flags}");
    }
}

#[test]
fn a_later_version_is_read_by_the_fields_of_version_00() {
    let later = with_flags("00").replacen("00", "cc", 1);
    for text in [later.clone(), format!("{later}-what")] {
        assert!(matches!(Caller::of(&headers(&text)), Caller::Declines(_)), "{text}");
    }
}

#[test]
fn an_invalid_traceparent_is_ignored() {
    let declined = with_flags("00");
    for good in [RECORDED, &declined] {
        for bad in [
            String::new(),
            "00".to_owned(),
            good.to_uppercase(),
            good.replacen("00", "ff", 1),
            format!("{good}-what"),
            good.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            good.replace("00f067aa0ba902b7", &"0".repeat(16)),
            good.replace('-', "_"),
            good.replace("4bf9", "4bg9"),
        ] {
            let caller = Caller::of(&headers(&bad));
            assert!(matches!(caller, Caller::Undecided), "{bad:?} {caller:?}");
        }
    }
}

#[test]
fn two_parents_count_as_none_and_a_long_state_is_dropped() {
    let mut headers = headers(RECORDED);
    let kept = |headers: &HeaderMap| match Caller::of(headers) {
        Caller::Records(parent) => parent.trace_state().header(),
        other => panic!("{other:?}"),
    };
    headers.insert(TRACESTATE, HeaderValue::from_static("a=1"));
    assert_eq!(kept(&headers), "a=1");
    headers.insert(TRACESTATE, format!("a={}", "1".repeat(LONGEST_STATE)).parse().unwrap());
    assert_eq!(kept(&headers), "");
    headers.append(TRACEPARENT, HeaderValue::from_static(RECORDED));
    assert!(matches!(Caller::of(&headers), Caller::Undecided));
}

#[test]
fn a_span_without_a_state_is_injected_without_one() {
    let Caller::Records(parent) = Caller::of(&headers(RECORDED)) else { panic!("it records") };
    let mut injected = HeaderMap::new();
    inject(&parent, &mut injected);
    assert_eq!(injected, headers(RECORDED));
}
