//! Accepted and refused settings.

use serde_json::json;

use super::*;
use crate::Layer;

fn read(json: &serde_json::Value) -> Result<Settings, InvalidSettings> {
    Settings::try_from(&Layer::from_json(json)?.message())
}

#[test]
fn defaults_fill_omitted_settings() {
    let settings = Settings::default();
    assert_eq!(settings.judge, Config::default());
    assert_eq!(settings.mode, Mode::Registry);
    let tenth = Step { share: Share::new(0.1).unwrap(), time: Duration::ZERO, requests: 0 };
    assert_eq!(settings.ramp, Ramp::Steps(vec![tenth]));
}

#[test]
fn given_settings_replace_defaults() {
    let settings = read(&json!({
        "mode": "MODE_LOCAL",
        "onStarved": "ON_STARVED_CONTINUE",
        "minimumTime": "1s",
        "signals": {
            "errorRate": {"margin": 0.2},
            "latency": {"quantile": 0.5, "limits": {"off": false}},
            "scoreDrift": {"off": true},
        },
    }))
    .unwrap();
    assert_eq!(settings.judge.error_rate, Some(Limits { tolerance: 0.0, margin: 0.2 }));
    assert_eq!(settings.judge.quantile(), 0.5);
    assert_eq!(settings.judge.scores, None);
    assert_eq!(settings.judge.minimum_time, Duration::from_secs(1));
    assert_eq!((settings.mode, settings.on_starved), (Mode::Local, OnStarved::Continue));
}

#[test]
fn disagreement_is_watched_when_it_is_named_and_there_is_a_shadow() {
    let settings = read(&json!({"shadow": 0.2})).unwrap();
    assert_eq!((settings.shadow, settings.judge), (0.2, Config::default()));
    let both = json!({"shadow": 1, "signals": {"disagreement": {"margin": 0.3}}});
    let settings = read(&both).unwrap();
    assert_eq!(settings.judge.disagreement, Some(Limits { tolerance: 0.1, margin: 0.3 }));
    let settings = settings.of_distributions().unwrap();
    assert_eq!((settings.shadow, settings.judge.disagreement), (0.0, None));
    for wrong in [json!({"shadow": 1.5}), json!({"signals": {"disagreement": {}}})] {
        let message = read(&wrong).unwrap_err().to_string();
        assert!(message.contains("shadow"), "{message}");
    }
}

fn profile() -> Option<Arc<Profile>> {
    let profile = br#"{"schema": "outrigger.dev/profile/v1", "features": []}"#;
    Some(Arc::new(Profile::parse(profile).unwrap()))
}

/// Reads settings that watch the signals in `named` and no others.
fn only(named: &serde_json::Value) -> Result<Settings, InvalidSettings> {
    let off = json!({"off": true});
    let mut signals = json!({
        "errorRate": off, "latency": {"limits": off}, "scoreDrift": off,
        "nonFinite": {"limits": off},
    });
    let named = named.as_object().unwrap().clone();
    signals.as_object_mut().unwrap().extend(named);
    read(&json!({"shadow": 0.5, "signals": signals}))
}

#[test]
fn each_signal_may_be_watched_alone_and_none_may_not() {
    for named in [
        json!({"errorRate": {}}),
        json!({"latency": {}}),
        json!({"scoreDrift": {}}),
        json!({"nonFinite": {}}),
        json!({"disagreement": {}}),
        json!({"skew": {}}),
    ] {
        let settings = only(&named).and_then(|settings| settings.against(profile()));
        assert!(settings.unwrap().judge.watches(), "{named}");
    }
    assert!(only(&json!({})).unwrap_err().to_string().contains("none is watched"));
}

#[test]
fn a_model_that_samples_needs_a_distribution_signal() {
    let drawing = |named| {
        let settings = only(&named).and_then(|settings| settings.against(profile()));
        settings.unwrap().of_distributions()
    };
    assert!(drawing(json!({"skew": {}, "disagreement": {}})).is_ok());
    let message = drawing(json!({"disagreement": {}})).unwrap_err().to_string();
    assert!(message.contains("samples"), "{message}");
}

#[test]
fn skew_is_watched_when_it_is_named_and_needs_a_profile() {
    assert_eq!(read(&json!({})).unwrap().against(profile()).unwrap().judge.skew, None);
    let settings = read(&json!({"signals": {"skew": {"tolerance": 0.03}}})).unwrap();
    let message = settings.clone().against(None).unwrap_err().to_string();
    assert!(message.contains("profile.json"), "{message}");
    let skew = settings.against(profile()).unwrap().judge.skew.unwrap();
    assert_eq!(skew.limits, Limits { tolerance: 0.03, margin: 0.1 });
    assert!(read(&json!({"signals": {"skew": {"margin": 0.01}}})).is_err());
}

#[test]
fn all_problems_are_reported_at_once() {
    let wrong = read(&json!({
        "confidence": 2,
        "ramp": {"evidence": {"first": 0.5, "most": 1.5}},
        "minimumTime": "-1s",
    }));
    let message = wrong.unwrap_err().to_string();
    for part in ["confidence", "ramp.evidence.most", "minimum_time"] {
        assert!(message.contains(part), "{part} in {message}");
    }
}

fn steps(shares: &[f64]) -> serde_json::Value {
    let steps: Vec<_> = shares.iter().map(|share| json!({"share": share})).collect();
    json!({"ramp": {"steps": {"steps": steps}}})
}

#[test]
fn values_out_of_bounds_are_refused_with_key_and_bounds() {
    let year_and_more = "31536001s";
    for (wrong, message) in [
        (json!({"confidence": 0.5}), "confidence: must be above 0.5 and below 1, not 0.5"),
        (json!({"confidence": "NaN"}), "confidence: must be above 0.5 and below 1, not NaN"),
        (json!({"ramp": {"share": 0}}), "ramp.share: must be from 0.000001 to 0.999999, not 0"),
        (json!({"ramp": {"share": 1}}), "ramp.share: must be"),
        (json!({"ramp": {"share": "NaN"}}), "ramp.share: must be"),
        (json!({"ramp": {"share": "Infinity"}}), "ramp.share: must be"),
        (json!({"ramp": {"steps": {}}}), "ramp.steps.steps: must be from 1 to 100, not 0"),
        (steps(&[0.1; 101]), "ramp.steps.steps: must be from 1 to 100, not 101"),
        (steps(&[0.1, -0.2]), "ramp.steps.steps[1].share: must be from"),
        (
            steps(&[0.1, 0.5, 0.2]),
            "ramp.steps.steps[2].share: must not be below the one before, 0.5, not 0.2",
        ),
        (
            json!({"ramp": {"steps": {"steps": [{"share": 0.1, "time": "-5s"}]}}}),
            "ramp.steps.steps[0].time: must be from 0s to 31536000s, not -5s",
        ),
        (
            json!({"maximumTime": "600s", "ramp": {"steps": {"steps": [
                {"share": 0.1, "time": "400s"}, {"share": 0.2, "time": "200s"}]}}}),
            "ramp.steps.steps: must be over before maximum_time, 600s, and take 600s",
        ),
        (json!({"ramp": {"evidence": {"most": 0.5}}}), "ramp.evidence.first: must be from"),
        (
            json!({"ramp": {"evidence": {"first": 0.2, "most": 0.1}}}),
            "ramp.evidence.most: 0.1 is below first, 0.2",
        ),
        (
            json!({"warmUp": {"requests": 99}}),
            "warm_up.requests: must be from 100 to 10000, not 99",
        ),
        (json!({"warmUp": {"requests": 10_001}}), "warm_up.requests: must be"),
        (json!({"warmUp": {"time": year_and_more}}), "warm_up.time: must be from 0s to 31536000s"),
        (json!({"minimumTime": "-0.5s"}), "minimum_time: must be from 0s"),
        (json!({"maximumTime": "0s"}), "maximum_time: must be above 0s and at most 31536000s"),
        (json!({"maximumTime": year_and_more}), "maximum_time: must be"),
        (json!({"maximumTime": "300s"}), "minimum_time: 600s is longer than maximum_time, 300s"),
        (
            json!({"signals": {"errorRate": {"margin": 5}}}),
            "signals.error_rate.margin: must be from 0.000001 to 0.999999, not 5",
        ),
        (json!({"signals": {"errorRate": {"margin": 0}}}), "signals.error_rate.margin: must be"),
        (
            json!({"signals": {"errorRate": {"tolerance": 0.01}}}),
            "signals.error_rate.tolerance: must be from 0 to the margin 0.005, not 0.01",
        ),
        (
            json!({"signals": {"scoreDrift": {"tolerance": -0.01}}}),
            "signals.score_drift.tolerance: must be",
        ),
        (json!({"signals": {"scoreDrift": {"margin": "NaN"}}}), "signals.score_drift.margin"),
        (
            json!({"signals": {"latency": {"limits": {"margin": 0.02}}}}),
            "signals.latency.limits.margin: must be from 0.021 to 1000, not 0.02",
        ),
        (
            json!({"signals": {"latency": {"limits": {"margin": "Infinity"}}}}),
            "signals.latency.limits.margin: must be",
        ),
        (
            json!({"signals": {"latency": {"quantile": 95}}}),
            "signals.latency.quantile: must be above 0 and below 1, not 95",
        ),
        (
            json!({"signals": {"nonFinite": {"expected": 0}}}),
            "signals.non_finite.expected: must be above 0 and below 1, not 0",
        ),
        (json!({"signals": {"skew": {"margin": 1}}}), "signals.skew.margin: must be"),
        (json!({"shadow": 1.5}), "shadow: must be from 0 to 1, not 1.5"),
        (json!({"shadow": "NaN"}), "shadow: must be from 0 to 1, not NaN"),
    ] {
        let refused = read(&wrong).expect_err(message).to_string();
        assert!(refused.contains(message), "{message} in {refused}");
    }
}

#[test]
fn values_at_the_bounds_are_accepted() {
    for right in [
        json!({"confidence": 0.999_999}),
        json!({"ramp": {"share": 0.000_001}}),
        json!({"ramp": {"share": 0.999_999}}),
        steps(&[0.1, 0.1, 0.999_999]),
        json!({"ramp": {"evidence": {"first": 0.1, "most": 0.1}}}),
        json!({"warmUp": {"requests": 100, "time": "0s"}}),
        json!({"warmUp": {"requests": 10_000}}),
        json!({"minimumTime": "0s", "maximumTime": "0.001s"}),
        json!({"minimumTime": "31536000s", "maximumTime": "31536000s"}),
        json!({"minimumRequests": "18446744073709551615"}),
        json!({"signals": {"errorRate": {"tolerance": 0.999_999, "margin": 0.999_999}}}),
        json!({"signals": {"latency": {"limits": {"tolerance": 1000, "margin": 1000}}}}),
        json!({"shadow": 1}),
    ] {
        assert_eq!(read(&right).map(|_| ()), Ok(()), "{right}");
    }
}

#[test]
fn times_of_the_binary_form_have_the_same_bounds() {
    let with = |seconds, nanos| {
        let minimum_time = Some(WireDuration { seconds, nanos });
        Settings::try_from(&ModelCanaryConfig { minimum_time, ..Default::default() })
    };
    assert_eq!(with(1, -1).unwrap().judge.minimum_time, Duration::new(0, 999_999_999));
    for (seconds, nanos) in [(i64::MAX, i32::MAX), (i64::MIN, 0), (0, -1)] {
        let refused = with(seconds, nanos).unwrap_err().to_string();
        assert!(refused.contains("minimum_time: must be from 0s to 31536000s"), "{refused}");
    }
}
