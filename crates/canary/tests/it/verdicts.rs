//! Verdicts on simulated traffic.

use std::{sync::Arc, time::Duration};

use outrigger_canary::{
    Config, Decider, Decision, Finding, LatencyLimits, Limits, Merge, Observation, Outcome, Pair,
    Profile, Reference, Share, Signal, SkewLimits, State, Statistics, Verdict,
    simulation::{Effect, Generated, Live, Traffic},
};
use outrigger_core::Arm;

const HOUR: Duration = Duration::from_secs(3600);

fn share(share: f64) -> Share {
    Share::new(share).expect("between 0 and 1")
}

fn traffic(effect: Effect, seed: u64) -> Traffic {
    Traffic::new(share(0.1), Live::Generated(Generated::default()), effect, seed)
}

fn observed(mut traffic: Traffic, requests: usize) -> Statistics {
    let sample = traffic.before(Reference::REQUESTS);
    let mut statistics = Statistics::new(Arc::new(Reference::new(&sample, 0.95)));
    for _ in 0..requests {
        statistics.record(traffic.share, &traffic.request());
    }
    statistics
}

fn verdict(effect: Effect, requests: usize) -> Verdict {
    Decider::new(Config::default()).verdict(&observed(traffic(effect, 1), requests), HOUR)
}

fn finding(verdict: &Verdict, signal: Signal) -> &Finding {
    verdict.findings.iter().find(|finding| finding.signal == signal).expect("it is watched")
}

/// The signals with proved harm.
fn harmful(effect: Effect, requests: usize) -> Vec<Signal> {
    let verdict = verdict(effect, requests);
    let harmful = verdict.findings.iter().filter(|finding| finding.state == State::Harmful);
    let signals: Vec<_> = harmful.map(|finding| finding.signal).collect();
    assert_eq!(verdict.decision == Decision::Rollback, !signals.is_empty());
    for finding in &verdict.findings {
        assert!(finding.lower <= finding.difference && finding.difference <= finding.upper);
        assert_eq!(finding.state == State::Harmful, finding.lower > 0.0, "{finding}");
    }
    signals
}

#[test]
fn each_defect_is_seen_by_its_signal() {
    let none = Effect::NONE;
    let defects = [
        (Effect { errors: 0.04, ..none }, Signal::ErrorRate),
        (Effect { latency: 1.5, ..none }, Signal::Latency),
        (Effect { shift: -0.3, ..none }, Signal::Scores),
        (Effect { constant: true, ..none }, Signal::Scores),
        (Effect { non_finite: 0.01, ..none }, Signal::NonFinite),
    ];
    for (effect, signal) in defects {
        assert_eq!(harmful(effect, 10_000), [signal], "{effect:?}");
    }
}

#[test]
fn a_canary_like_live_is_promoted_and_a_better_one_too() {
    assert_eq!(verdict(Effect::NONE, 150_000).decision, Decision::Promote);
    let faster = Effect { latency: 0.5, ..Effect::NONE };
    assert_eq!(verdict(faster, 150_000).decision, Decision::Promote);
}

#[test]
fn promotion_waits_for_the_minimum_time_and_requests() {
    let statistics = observed(traffic(Effect::NONE, 1), 150_000);
    let config = Config { minimum_time: 2 * HOUR, ..Config::default() };
    assert_eq!(Decider::new(config).decide(&statistics, HOUR), Decision::Continue);
    let config = Config { minimum_requests: 1_000_000, ..Config::default() };
    assert_eq!(Decider::new(config).decide(&statistics, HOUR), Decision::Continue);
}

#[test]
fn a_difference_within_its_margin_is_no_harm() {
    // Twice as many errors as live, still within the margin.
    let limits = Limits { tolerance: 0.0, margin: 0.05 };
    let config = Config { error_rate: Some(limits), ..Config::default() };
    let effect = Effect { errors: 0.01, ..Effect::NONE };
    let statistics = observed(traffic(effect, 1), 150_000);
    let verdict = Decider::new(config).verdict(&statistics, HOUR);
    let errors = finding(&verdict, Signal::ErrorRate);
    assert!(errors.lower > 0.0 && errors.upper < 0.05, "{errors}");
    assert_eq!(verdict.decision, Decision::Promote);
}

#[test]
fn a_difference_within_the_tolerance_is_no_harm() {
    let effect = Effect { shift: 0.25, ..Effect::NONE };
    let statistics = observed(traffic(effect, 1), 50_000);
    for (tolerance, expected) in [(0.02, Decision::Rollback), (0.2, Decision::Continue)] {
        let scores = Some(Limits { tolerance, margin: tolerance.max(0.05) });
        let decider = Decider::new(Config { scores, minimum_time: 2 * HOUR, ..Config::default() });
        assert_eq!(decider.decide(&statistics, HOUR), expected, "{tolerance}");
    }
}

#[test]
fn a_canary_that_cannot_be_decided_in_time_starves() {
    let statistics = observed(traffic(Effect::NONE, 1), 1000);
    let decider = Decider::new(Config::default());
    assert_eq!(decider.decide(&statistics, HOUR), Decision::Continue);
    // The forecast for 24 hours is 8,000 requests.
    assert_eq!(decider.decide(&statistics, 3 * HOUR), Decision::Starved);
    assert_eq!(decider.decide(&statistics, 24 * HOUR), Decision::Starved);
    let busy = observed(traffic(Effect::NONE, 1), 20_000);
    assert_eq!(decider.decide(&busy, 3 * HOUR), Decision::Continue);
    assert_eq!(decider.decide(&busy, 24 * HOUR), Decision::Starved);
}

#[test]
fn before_the_first_request_any_difference_is_possible() {
    let verdict =
        Decider::new(Config::default()).verdict(&observed(traffic(Effect::NONE, 1), 0), HOUR);
    let bounds = |signal| {
        let finding =
            verdict.findings.iter().find(|it| it.signal == signal).expect("it is watched");
        (finding.lower, finding.upper)
    };
    assert_eq!(bounds(Signal::Scores), (0.0, 1.0));
    assert_eq!(bounds(Signal::ErrorRate), (-1.0, 1.0));
    assert_eq!(bounds(Signal::Latency).1, f64::INFINITY);
}

#[test]
fn merged_replicas_prove_more_than_any_single_one() {
    let effect = Effect { errors: 0.02, ..Effect::NONE };
    let reference = Arc::new(Reference::new(&traffic(effect, 0).before(1000), 0.95));
    let mut all = Statistics::new(reference.clone());
    let decider = Decider::new(Config::default());
    for seed in 1..=5 {
        let mut traffic = traffic(effect, seed);
        let mut replica = Statistics::new(reference.clone());
        (0..2500).for_each(|_| replica.record(traffic.share, &traffic.request()));
        assert_eq!(decider.decide(&replica, HOUR), Decision::Continue);
        all.merge(&replica);
    }
    assert_eq!(decider.decide(&all, HOUR), Decision::Rollback);
}

#[test]
fn an_outage_of_both_arms_is_not_the_canarys() {
    let mut statistics = observed(traffic(Effect::NONE, 3), 20_000);
    let live = Live::Generated(Generated {
        error_rate: 0.6,
        latency: Duration::from_secs(1),
        ..Generated::default()
    });
    let mut outage = Traffic::new(share(0.1), live, Effect::NONE, 4);
    let decider = Decider::new(Config::default());
    for _ in 0..5000 {
        statistics.record(outage.share, &outage.request());
        assert!(!decider.harmful(&statistics));
    }
}

#[test]
fn a_ramp_during_an_outage_is_not_the_canarys() {
    // Requests of both shares fail more often at the larger one: pooled, the canary would
    // have 9 % and live 7 %.
    let mut statistics = observed(traffic(Effect::NONE, 5), 20_000);
    let live = Live::Generated(Generated { error_rate: 0.1, ..Generated::default() });
    let mut later = Traffic::new(share(0.5), live, Effect::NONE, 6);
    (0..20_000).for_each(|_| statistics.record(later.share, &later.request()));
    let rate = |arm| {
        let arm = statistics.arm(arm);
        arm.failed() as f64 / arm.requests() as f64
    };
    assert!(rate(Arm::Canary) > 1.2 * rate(Arm::Live));
    let verdict = Decider::new(Config::default()).verdict(&statistics, HOUR);
    assert_ne!(finding(&verdict, Signal::ErrorRate).state, State::Harmful);
}

/// Statistics of `(non-finite answers, requests)` in live and in the canary.
fn with_non_finite(live: (u64, u64), canary: (u64, u64)) -> Statistics {
    let mut statistics = Statistics::new(Arc::new(Reference::new(&[], 0.95)));
    for (arm, (non_finite, requests)) in [(Arm::Live, live), (Arm::Canary, canary)] {
        for request in 0..requests {
            let outcome = if request < non_finite { Outcome::NonFinite } else { Outcome::Empty };
            let latency = Some(Duration::from_millis(20));
            let observation = Observation { arm, latency, outcome };
            statistics.record(share(0.1), &observation);
        }
    }
    statistics
}

#[test]
fn two_answers_that_are_not_finite_are_enough_unless_live_has_them_too() {
    let decider = Decider::new(Config::default());
    assert!(!decider.harmful(&with_non_finite((0, 2700), (1, 300))));
    assert!(decider.harmful(&with_non_finite((0, 2700), (2, 300))));
    assert!(!decider.harmful(&with_non_finite((2, 2700), (2, 300))));
    assert!(!decider.harmful(&with_non_finite((90, 27_000), (10, 3000))));
    // Without a known rate of live it takes three.
    let mut config = Config::default();
    config.non_finite.as_mut().unwrap().expected = None;
    let decider = Decider::new(config);
    assert!(!decider.harmful(&with_non_finite((0, 2700), (2, 300))));
    assert!(decider.harmful(&with_non_finite((0, 2700), (4, 300))));
}

/// A configuration without signals; tests add those that they watch.
fn nothing() -> Config {
    Config { error_rate: None, latency: None, scores: None, non_finite: None, ..Config::default() }
}

#[test]
fn disagreement_of_shadowed_requests_is_compared_with_its_limits() {
    let limits = Limits { tolerance: 0.05, margin: 0.05 };
    let decider =
        Decider::new(Config { disagreement: Some(limits), minimum_requests: 0, ..nothing() });
    for (every, expected) in [(100, Decision::Promote), (8, Decision::Rollback)] {
        let mut statistics = Statistics::new(Arc::new(Reference::new(&[], 0.95)));
        for number in 1..=4000 {
            let same_top = number % every != 0;
            statistics.record_pair(&Pair { same_top, difference: Some(0.0) });
        }
        assert_eq!(decider.decide(&statistics, HOUR), expected, "one in {every}");
    }
}

#[test]
fn skew_names_the_feature() {
    let profile = br#"{"schema": "outrigger.dev/profile/v1", "features": [
        {"name": "recency", "edges": [6], "shares": [0.5, 0.5]},
        {"name": "channel", "missing": 0.02, "words": ["phone", "web"], "shares": [0.48, 0.5]}]}"#;
    let profile = Arc::new(Profile::parse(profile).unwrap());
    let limits = Limits { tolerance: 0.1, margin: 0.1 };
    let skew = Some(SkewLimits { profile, limits });
    let decider = Decider::new(Config { skew, minimum_requests: 0, ..nothing() });
    let statistics = |missing_every: usize| {
        let mut statistics = Statistics::new(Arc::new(Reference::new(&[], 0.95)));
        for number in 0..4000 {
            let word = if number % missing_every == 0 { 0 } else { 2 + number / 2 % 2 };
            statistics.record_features(share(0.1), Arm::Canary, &[2 + number % 2, word]);
        }
        statistics
    };
    assert_eq!(decider.decide(&statistics(50), HOUR), Decision::Promote);
    let verdict = decider.verdict(&statistics(5), HOUR);
    assert_eq!(verdict.decision, Decision::Rollback);
    let skew = finding(&verdict, Signal::Skew);
    assert_eq!(skew.detail.as_deref(), Some("channel: missing"));
    assert!(skew.lower > 0.1 && skew.upper < 0.25, "{skew}");
}

#[test]
fn a_category_absent_from_the_profile_is_skew_once_it_is_seen() {
    let profile = br#"{"schema": "outrigger.dev/profile/v1", "features": [
        {"name": "channel", "words": ["phone", "web"], "shares": [0.5, 0.5]}]}"#;
    let profile = Arc::new(Profile::parse(profile).unwrap());
    let limits = Limits { tolerance: 0.0, margin: 0.01 };
    let decider = Decider::new(Config { skew: Some(SkewLimits { profile, limits }), ..nothing() });
    let mut statistics = Statistics::new(Arc::new(Reference::new(&[], 0.95)));
    assert!(!decider.harmful(&statistics));
    for number in 0..1000 {
        statistics.record_features(share(0.1), Arm::Canary, &[2 + number % 2]);
        assert!(!decider.harmful(&statistics), "{number}");
    }
    let missing = &[0];
    statistics.record_features(share(0.1), Arm::Canary, missing);
    assert!(decider.harmful(&statistics), "one value refutes a share of 0");
}

/// Statistics of arms whose scores are given by `live` and `canary`.
fn with_scores(live: fn(u32) -> f64, canary: fn(u32) -> f64, requests: u32) -> Statistics {
    let scored = |arm, score| Observation {
        arm,
        latency: Some(Duration::from_millis(20)),
        outcome: Outcome::Scored(score),
    };
    let sample: Vec<_> = (0..1000).map(|number| scored(Arm::Live, live(number))).collect();
    let mut statistics = Statistics::new(Arc::new(Reference::new(&sample, 0.95)));
    for number in 0..requests {
        let seen = if number % 10 == 0 {
            scored(Arm::Canary, canary(number / 10))
        } else {
            scored(Arm::Live, live(number))
        };
        statistics.record(share(0.1), &seen);
    }
    statistics
}

fn only_scores() -> Decider {
    let limits = Limits { tolerance: 0.0, margin: 0.05 };
    Decider::new(Config { scores: Some(limits), ..nothing() })
}

#[test]
fn scores_that_pile_up_may_not_move_either_way() {
    let constant: fn(u32) -> f64 = |_| 0.5;
    let verdict = |canary| only_scores().decide(&with_scores(constant, canary, 20_000), HOUR);
    assert_eq!(verdict(constant), Decision::Promote);
    assert_eq!(verdict(|_| 0.4), Decision::Rollback);
    assert_eq!(verdict(|_| 0.6), Decision::Rollback);
    // Half of live's scores are cut off at 0.
    let half = |number: u32| f64::from(number * 7919 % 1000).max(500.0) / 500.0 - 1.0;
    let below = |number: u32| f64::from(number * 7919 % 1000) / 500.0 - 1.0;
    assert_eq!(only_scores().decide(&with_scores(half, below, 20_000), HOUR), Decision::Rollback);
}

#[test]
fn without_scores_nothing_is_proved_about_them() {
    let statistics = with_non_finite((0, 90_000), (0, 10_000));
    assert_eq!(only_scores().decide(&statistics, HOUR), Decision::Continue);
    let verdict = only_scores().verdict(&statistics, HOUR);
    assert_eq!(finding(&verdict, Signal::Scores).state, State::Open);
}

#[test]
fn harm_that_begins_late_is_seen() {
    let mut statistics = observed(traffic(Effect::NONE, 1), 100_000);
    let mut later = traffic(Effect { errors: 0.5, ..Effect::NONE }, 2);
    let decider = Decider::new(Config::default());
    let requests = (1..).find(|_| {
        statistics.record(later.share, &later.request());
        decider.harmful(&statistics)
    });
    assert!(requests.is_some_and(|requests| requests < 5000), "{requests:?}");
}

#[test]
fn a_sample_ratio_mismatch_is_reported() {
    let fits = |canary| {
        let statistics = with_non_finite((0, 9000), (0, canary));
        Decider::new(Config::default()).verdict(&statistics, HOUR).sample_ratio.fits
    };
    assert_eq!([850, 1000, 1100, 1300].map(fits), [false, true, true, false]);
}

#[test]
fn a_sample_ratio_mismatch_holds_the_promotion_back_and_starves() {
    // A fourth of the canary's requests is lost.
    let mut traffic = traffic(Effect::NONE, 1);
    let sample = traffic.before(Reference::REQUESTS);
    let mut statistics = Statistics::new(Arc::new(Reference::new(&sample, 0.95)));
    for number in 0..200_000 {
        let seen = traffic.request();
        if seen.arm == Arm::Live || number % 4 > 0 {
            statistics.record(traffic.share, &seen);
        }
    }
    let decider = Decider::new(Config::default());
    let verdict = decider.verdict(&statistics, HOUR);
    assert!(verdict.findings.iter().all(|finding| finding.state == State::Harmless));
    assert_eq!(verdict.decision, Decision::Continue);
    let verdict = decider.verdict(&statistics, 3 * HOUR);
    assert_eq!(verdict.decision, Decision::Starved);
    let text = verdict.to_string();
    assert!(text.starts_with("starved: the canary had 7."), "{text}");
    // A mismatch that further requests would outweigh may still be decided.
    let slight = with_non_finite((0, 90_000), (0, 10_900));
    let config = Config { non_finite: Config::default().non_finite, ..nothing() };
    let decider = Decider::new(config);
    assert!(!decider.verdict(&slight, HOUR).sample_ratio.fits);
    assert_eq!(decider.decide(&slight, HOUR), Decision::Continue);
    assert_eq!(decider.decide(&slight, 3 * HOUR), Decision::Continue);
    assert_eq!(decider.decide(&slight, 24 * HOUR), Decision::Starved);
}

#[test]
fn a_verdict_says_why() {
    let text = verdict(Effect { latency: 1.5, ..Effect::NONE }, 10_000).to_string();
    assert!(text.starts_with("rollback: latency 6"), "{text}");
    assert!(!text.contains("error rate"), "{text}");
}

/// Statistics of requests whose log latency has a standard deviation of `sigma`; live's
/// median latency before the trial was `before`.
fn timed(sigma: f64, before: Duration, effect: Effect, requests: u32) -> Statistics {
    let live = Generated { sigma, ..Generated::default() };
    let earlier = Live::Generated(Generated { latency: before, ..live });
    let sample = Traffic::new(share(0.1), earlier, Effect::NONE, 0).before(Reference::REQUESTS);
    let mut statistics = Statistics::new(Arc::new(Reference::new(&sample, 0.95)));
    let mut traffic = Traffic::new(share(0.1), Live::Generated(live), effect, 1);
    (0..requests).for_each(|_| statistics.record(traffic.share, &traffic.request()));
    statistics
}

fn latency_of(statistics: &Statistics) -> Finding {
    let verdict = Decider::new(Config::default()).verdict(statistics, HOUR);
    finding(&verdict, Signal::Latency).clone()
}

const USUAL: Duration = Duration::from_millis(20);

#[test]
fn an_equal_canary_is_harmless_where_live_hardly_varies() {
    let slower = |latency| Effect { latency, ..Effect::NONE };
    for sigma in [0.0, 0.001, 0.01, 0.05] {
        let found = |effect| latency_of(&timed(sigma, USUAL, effect, 20_000));
        for (effect, state) in [
            (Effect::NONE, State::Harmless),
            (slower(0.5), State::Harmless),
            (slower(1.2), State::Harmful),
        ] {
            let found = found(effect);
            assert_eq!(found.state, state, "{effect:?} at {sigma}: {found}");
            let beyond = f64::max(found.lower - found.difference, found.difference - found.upper);
            assert!(beyond < 1e-9, "{found}");
        }
    }
}

#[test]
fn a_long_tail_is_harmful_where_live_hardly_varies() {
    let at = |arm, millis| Observation {
        arm,
        latency: Some(Duration::from_millis(millis)),
        outcome: Outcome::Empty,
    };
    let statistics = |every| {
        let mut statistics =
            Statistics::new(Arc::new(Reference::new(&[at(Arm::Live, 20); 1000], 0.95)));
        for number in 0..5000_u64 {
            (0..9).for_each(|_| statistics.record(share(0.1), &at(Arm::Live, 20)));
            let millis = if number % every == 0 { 200 } else { 20 };
            statistics.record(share(0.1), &at(Arm::Canary, millis));
        }
        statistics
    };
    // Latencies beyond the 95th percentile do not count.
    assert_eq!(latency_of(&statistics(100)).state, State::Harmless);
    assert_eq!(latency_of(&statistics(12)).state, State::Harmful);
}

#[test]
fn an_equal_canary_is_harmless_where_live_became_faster() {
    let before = Duration::from_millis(100);
    let found = |effect| latency_of(&timed(0.5, before, effect, 300_000));
    let alike = found(Effect::NONE);
    assert_eq!(alike.state, State::Harmless, "{alike}");
    assert!(alike.difference.abs() < 0.1, "{alike}");
    let slower = found(Effect { latency: 1.2, ..Effect::NONE });
    assert_ne!(slower.state, State::Harmless, "{slower}");
}

/// Statistics of requests of which every third is the canary's. `live` and `canary` give
/// an arm's latency in milliseconds by request number; live took `before` ms before the
/// trial.
fn taken(before: u64, live: fn(u64) -> u64, canary: fn(u64) -> u64, requests: u64) -> Statistics {
    let at = |arm, millis| Observation {
        arm,
        latency: Some(Duration::from_millis(millis)),
        outcome: Outcome::Empty,
    };
    let sample = [at(Arm::Live, before); 1000];
    let mut statistics = Statistics::new(Arc::new(Reference::new(&sample, 0.95)));
    for number in 0..requests / 3 {
        statistics.record(share(1.0 / 3.0), &at(Arm::Canary, canary(number)));
        for number in [2 * number, 2 * number + 1] {
            statistics.record(share(1.0 / 3.0), &at(Arm::Live, live(number)));
        }
    }
    statistics
}

#[test]
fn a_latency_that_cannot_be_compared_does_not_count() {
    let plain = taken(20, |number| 10 + number % 20, |number| 15 + number % 30, 3000);
    let mut with_others = plain.clone();
    for number in 0..3000 {
        let arm = if number % 3 == 0 { Arm::Canary } else { Arm::Live };
        let other = Observation { arm, latency: None, outcome: Outcome::Failed };
        with_others.record(share(1.0 / 3.0), &other);
    }
    assert_eq!(latency_of(&with_others), latency_of(&plain));
    assert_eq!(with_others.requests(), (4000, 2000));
}

#[test]
fn a_canary_that_slows_live_down_as_well_is_rolled_back() {
    // The arms share processors: six of seven of live's requests wait for the canary's.
    let live = |number| if number % 7 == 0 { 3 } else { 40 + number * 7 % 100 };
    let canary = |number| 70 + number * 11 % 100;
    let wide = Limits { tolerance: 0.5, margin: 1.0 };
    let limits = LatencyLimits { quantile: 0.95, limits: wide };
    let decider = Decider::new(Config { latency: Some(limits), ..nothing() });
    let statistics = taken(5, live, canary, 300);
    assert_eq!(decider.decide(&statistics, HOUR), Decision::Rollback);
    // If live suffers as much, the canary looks like an outage of both: as long as live is
    // more than ten times slower than before, it is neither rolled back nor promoted.
    let statistics = taken(5, canary, canary, 30_000);
    assert_eq!(decider.decide(&statistics, HOUR), Decision::Continue);
}

#[test]
fn lives_former_latency_is_harmful_where_live_became_faster() {
    // A few of live's requests are still as slow as most were before.
    let live = |number| if number % 50 == 0 { 100 } else { 2 };
    let statistics = taken(80, live, |_| 70, 30_000);
    let found = latency_of(&statistics);
    assert_eq!(found.state, State::Harmful, "{found}");
}

#[test]
fn a_slower_live_does_not_hide_a_long_tail() {
    // A fifth of live's requests is slower than most were before; the canary's tail is
    // far longer.
    let live = |number| if number % 5 == 0 { 60 } else { 40 };
    let canary = |number| if number % 14 == 0 { 500 } else { 30 };
    for before in [45, 10] {
        let found = latency_of(&taken(before, live, canary, 30_000));
        assert_ne!(found.state, State::Harmless, "{before}: {found}");
    }
    let found = latency_of(&timed(0.5, USUAL.mul_f64(0.7), Effect::NONE, 200_000));
    assert_eq!(found.state, State::Harmless, "{found}");
}

/// The number of 300 canaries whose confidence sequence misses the true difference at
/// any look.
fn missed(config: &Config, effect: Effect, truth: f64) -> usize {
    missed_since(Generated::default(), config, effect, truth)
}

/// The same with a live that was different before the trial.
fn missed_since(before: Generated, config: &Config, effect: Effect, truth: f64) -> usize {
    let decider = Decider::new(config.clone());
    let wrong = |seed: &u64| {
        let mut traffic = traffic(effect, *seed);
        let earlier = Live::Generated(before);
        let sample = Traffic::new(traffic.share, earlier, Effect::NONE, *seed).before(200);
        let mut statistics = Statistics::new(Arc::new(Reference::new(&sample, config.quantile())));
        (1..=3000_u64).any(|request| {
            statistics.record(traffic.share, &traffic.request());
            // Sparse looks keep the test fast; the bounds hold for looks after every
            // request.
            request.is_power_of_two() && request >= 64 || request % 500 == 0
        } && {
            let verdict = decider.verdict(&statistics, HOUR);
            let finding = &verdict.findings[0];
            finding.lower > truth || finding.upper < truth
        })
    };
    (0..300).filter(wrong).count()
}

#[test]
fn confidence_sequences_cover_the_truth_at_every_look() {
    // Each bound may miss in 10 % of the canaries, and the binomial standard deviation of
    // both together is 7.
    let most = 60 + 3 * 7;
    let limits = Limits { tolerance: 0.0, margin: 0.05 };
    let errors = Config { confidence: 0.9, error_rate: Some(limits), ..nothing() };
    let effect = Effect { errors: 0.03 / 0.99, ..Effect::NONE };
    assert!(missed(&errors, effect, 0.03) <= most);
    // Shows that the test can fail: the sequence misses a wrong value.
    assert!(missed(&errors, effect, -0.05) > most);

    let latency = LatencyLimits { quantile: 0.9, limits };
    let latency = Config { confidence: 0.9, latency: Some(latency), ..nothing() };
    let effect = Effect { latency: 1.3, ..Effect::NONE };
    assert!(missed(&latency, effect, 0.3) <= most);
    assert!(missed(&latency, effect, 0.0) > most);
    // Live has become far faster: the threshold has to fall first.
    let slower = Generated { latency: Duration::from_secs(1), ..Generated::default() };
    assert!(missed_since(slower, &latency, effect, 0.3) <= most);
    assert!(missed_since(slower, &latency, Effect::NONE, 0.6) > most);
    // Live has become slower.
    let faster = Generated { latency: Duration::from_millis(16), ..Generated::default() };
    assert!(missed_since(faster, &latency, effect, 0.3) <= most);

    let scores = Config { confidence: 0.9, scores: Some(limits), ..nothing() };
    assert!(missed(&scores, Effect::NONE, 0.0) <= most);
    let effect = Effect { shift: 0.4, ..Effect::NONE };
    assert!(missed(&scores, effect, 0.0) > most);
}
