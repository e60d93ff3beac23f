//! The course of trials under scripted requests.

use outrigger_core::Arm;

use super::*;
use crate::{Layer, Outcome};

struct Bench {
    trial: Trial,
    now: Moment,
    /// Position in the sequences from which scores and arms are drawn.
    count: u64,
}

impl Bench {
    fn new(settings: &serde_json::Value) -> Self {
        Self::resumed(settings, Progress::default())
    }

    fn resumed(settings: &serde_json::Value, progress: Progress) -> Self {
        let layer = Layer::from_json(settings).expect("a configuration");
        let settings = Settings::try_from(&layer.message()).expect("valid");
        let now = Moment::at(Duration::from_secs(1));
        Self { trial: Trial::new(Arc::new(settings), progress, 1, now), now, count: 0 }
    }

    /// Runs one second with `requests` requests; `canary` gives the canary's outcomes.
    fn second(&mut self, requests: u64, canary: impl Fn(f64) -> Outcome) -> Option<Conclusion> {
        let share = self.trial.share();
        for _ in 0..requests {
            self.count += 1;
            // Low-discrepancy sequences with different steps: evenly spread, and
            // independent of each other.
            let draw = |step: f64| (self.count as f64 * step).fract();
            let score = draw(0.618_033_988_749_895);
            let is_canary = share.is_some_and(|it| draw(0.414_213_562_373_095) < it.probability());
            let (arm, outcome) = match is_canary {
                true => (Arm::Canary, canary(score)),
                false => (Arm::Live, Outcome::Scored(score)),
            };
            let latency =
                Some(Duration::from_millis(10) + Duration::from_millis(40).mul_f64(draw(0.732)));
            self.trial.observe(share, &Observation { arm, latency, outcome }, self.now);
        }
        self.now = self.now + Duration::from_secs(1);
        self.trial.tick(self.now)
    }

    /// Runs until a conclusion, which must come; returns the seconds.
    fn run(&mut self, canary: impl Fn(f64) -> Outcome + Copy) -> (u64, Conclusion) {
        let mut seconds = (1..=10_000).map(|second| (second, self.second(1000, canary)));
        seconds.find_map(|(second, it)| Some((second, it?))).expect("it is decided")
    }
}

fn quick() -> serde_json::Value {
    serde_json::json!({"minimumTime": "2s", "minimumRequests": 100, "ramp": {"share": 0.5}})
}

#[test]
fn live_is_measured_before_the_traffic_is_split() {
    let mut bench = Bench::new(&quick());
    bench.second(99, Outcome::Scored);
    assert_eq!((bench.trial.share(), bench.trial.verdict()), (None, None));
    bench.now = bench.now + Duration::from_secs(60);
    bench.second(0, Outcome::Scored);
    assert_eq!(bench.trial.share(), None, "too few requests, at any time");
    bench.second(1, Outcome::Scored);
    assert_eq!(bench.trial.share(), Some(Share::new(0.5).unwrap()));
    let mut bench = Bench::new(&quick());
    bench.second(1000, Outcome::Scored);
    assert!(bench.trial.share().is_some(), "enough at once");
}

#[test]
fn the_warm_up_takes_the_configured_number_of_requests() {
    let mut settings = quick();
    settings["warmUp"] = serde_json::json!({"requests": 3000, "time": "3600s"});
    let mut bench = Bench::new(&settings);
    let shares = [(); 3].map(|()| {
        bench.second(1000, Outcome::Scored);
        bench.trial.share().is_some()
    });
    assert_eq!(shares, [false, false, true]);
}

#[test]
fn the_last_step_delays_the_promotion() {
    let ended = |step: serde_json::Value| {
        let steps = serde_json::json!({"steps": {"steps": [step]}});
        let mut bench = Bench::new(&serde_json::json!({
            "minimumTime": "1s", "minimumRequests": 1, "ramp": steps}));
        let (seconds, conclusion) = bench.run(Outcome::Scored);
        assert_eq!(conclusion, Conclusion::Promote(Cause::Proved));
        seconds
    };
    let soon = ended(serde_json::json!({"share": 0.5}));
    assert!(soon < 100, "{soon}");
    assert!(ended(serde_json::json!({"share": 0.5, "time": "300s"})) >= 300);
    assert!(ended(serde_json::json!({"share": 0.5, "requests": 150_000})) >= 299);
}

#[test]
fn a_good_canary_is_promoted_once() {
    let mut bench = Bench::new(&quick());
    let (_, conclusion) = bench.run(Outcome::Scored);
    assert_eq!(conclusion, Conclusion::Promote(Cause::Proved));
    assert!(bench.trial.is_promising());
    for _ in 0..10 {
        assert_eq!(bench.second(1000, Outcome::Scored), None);
    }
}

#[test]
fn a_bad_canary_is_rolled_back_soon() {
    for bad in [|_| Outcome::Failed, |_| Outcome::NonFinite, |_| Outcome::Scored(0.5)] {
        let mut bench = Bench::new(&quick());
        let (seconds, conclusion) = bench.run(bad);
        assert_eq!(conclusion, Conclusion::Rollback(Cause::Proved));
        assert!(seconds <= 3, "{seconds}");
    }
}

#[test]
fn a_canary_that_fails_after_its_promotion_was_concluded_is_rolled_back() {
    let mut bench = Bench::new(&quick());
    bench.run(Outcome::Scored);
    let (_, conclusion) = bench.run(|_| Outcome::Failed);
    assert_eq!(conclusion, Conclusion::Rollback(Cause::Proved));
}

#[test]
fn steps_last_for_their_time_and_requests_and_promotion_waits_for_the_last() {
    let steps = serde_json::json!({"steps": {"steps": [
        {"share": 0.1, "time": "5s"}, {"share": 0.5, "requests": 20_000}, {"share": 0.9}]}});
    let mut bench = Bench::new(&serde_json::json!({
        "minimumTime": "1s", "minimumRequests": 1, "ramp": steps}));
    let mut shares = Vec::new();
    let mut conclusion = None;
    while conclusion.is_none() {
        conclusion = bench.second(1000, Outcome::Scored);
        shares.extend(bench.trial.share().map(Share::probability));
    }
    assert_eq!(conclusion, Some(Conclusion::Promote(Cause::Proved)));
    let held = |share: f64| shares.iter().filter(|it| **it == share).count();
    assert_eq!(held(0.1), 5);
    assert!(held(0.5) >= 40, "{}", held(0.5));
    assert_eq!(shares.last(), Some(&0.9));
}

#[test]
fn the_evidence_ramp_doubles_up_to_its_largest_share() {
    let ramp = serde_json::json!({"evidence": {"first": 0.1, "most": 0.5, "requests": 500}});
    let mut bench = Bench::new(&serde_json::json!({"minimumTime": "3600s", "ramp": ramp}));
    let mut shares = Vec::new();
    for _ in 0..100 {
        assert_eq!(bench.second(1000, Outcome::Scored), None);
        shares.extend(bench.trial.share().map(Share::probability));
    }
    shares.dedup();
    assert_eq!(shares, [0.1, 0.2, 0.4, 0.5]);
}

#[test]
fn a_trial_without_traffic_starves_by_the_maximum_time() {
    let conclusion = |on_starved: &str| {
        let settings = serde_json::json!({
            "minimumTime": "2s", "maximumTime": "60s", "onStarved": on_starved});
        let mut bench = Bench::new(&settings);
        (0..100).find_map(|_| bench.second(0, Outcome::Scored))
    };
    let rollback = Some(Conclusion::Rollback(Cause::Starved));
    assert_eq!(conclusion("ON_STARVED_ROLLBACK"), rollback);
    assert_eq!(conclusion("ON_STARVED_PROMOTE"), Some(Conclusion::Promote(Cause::Starved)));
    assert_eq!(conclusion("ON_STARVED_CONTINUE"), None);
}

#[test]
fn a_trial_whose_arms_do_not_fit_the_share_starves_with_that_cause() {
    let conclusion = |on_starved: &str| {
        let mut settings = quick();
        settings["maximumTime"] = serde_json::json!("600s");
        settings["onStarved"] = serde_json::json!(on_starved);
        let mut bench = Bench::new(&settings);
        (0..600).find_map(|_| {
            if let Some(share) = bench.trial.share() {
                // Two in five of live's requests are recorded twice.
                for request in 0..200_u32 {
                    let latency = Some(Duration::from_millis(10 + u64::from(request / 5)));
                    let outcome = Outcome::Scored(f64::from(request) / 200.0);
                    let live = Observation { arm: Arm::Live, latency, outcome };
                    bench.trial.observe(Some(share), &live, bench.now);
                }
            }
            bench.second(1000, Outcome::Scored)
        })
    };
    let rollback = Some(Conclusion::Rollback(Cause::ShareMismatch));
    assert_eq!(conclusion("ON_STARVED_ROLLBACK"), rollback);
    let promote = Some(Conclusion::Promote(Cause::ShareMismatch));
    assert_eq!(conclusion("ON_STARVED_PROMOTE"), promote);
    assert_eq!(conclusion("ON_STARVED_CONTINUE"), None);
}

#[test]
fn a_trial_does_not_starve_while_its_share_can_grow() {
    let steps = serde_json::json!({"steps": {"steps": [
        {"share": 0.001, "time": "300s"}, {"share": 0.5}]}});
    let settings = |ramp: serde_json::Value| serde_json::json!({"minimumTime": "1s", "maximumTime": "1000s", "ramp": ramp});
    let conclusion = Bench::new(&settings(steps)).run(Outcome::Scored).1;
    assert_eq!(conclusion, Conclusion::Promote(Cause::Proved));
    let conclusion =
        Bench::new(&settings(serde_json::json!({"share": 0.001}))).run(Outcome::Scored).1;
    assert_eq!(conclusion, Conclusion::Rollback(Cause::Starved));
}

/// Runs minutes with `requests` requests each; returns the conclusion, if any.
fn minutes(bench: &mut Bench, minutes: u64, requests: u64) -> Option<Conclusion> {
    (0..minutes).find_map(|_| {
        bench.now = bench.now + Duration::from_secs(59);
        bench.second(requests, Outcome::Scored)
    })
}

#[test]
fn neither_a_quiet_beginning_nor_a_quiet_night_starves_a_canary() {
    // 100,000 requests are needed within the 1,440 minutes of a day; nothing starves in
    // the first tenth.
    let off = serde_json::json!({"off": true});
    let settings = serde_json::json!({
        "minimumRequests": 50_000, "maximumTime": "86400s", "ramp": {"share": 0.5},
        "signals": {"errorRate": {"margin": 0.1}, "latency": {"limits": off},
                    "scoreDrift": off, "nonFinite": {"limits": off}}});
    let after = |course: &[(u64, u64)]| {
        let mut bench = Bench::new(&settings);
        bench.second(1000, Outcome::Scored);
        course.iter().find_map(|(time, requests)| minutes(&mut bench, *time, *requests))
    };
    let starved = Some(Conclusion::Rollback(Cause::Starved));
    assert_eq!(after(&[(150, 30)]), starved, "it always was quiet");
    assert_eq!(after(&[(10, 600), (140, 10)]), starved, "only the beginning was not");
    assert_eq!(after(&[(84, 30), (90, 100)]), None, "only the beginning was quiet");
    assert_eq!(after(&[(120, 600), (120, 0)]), None, "only the last two hours are");
}

#[test]
fn recent_statistics_are_kept_beside_the_totals() {
    let mut bench = Bench::new(&serde_json::json!({"minimumTime": "3600s"}));
    assert_eq!(bench.trial.lately(bench.now).map(|_| ()), None, "nothing is split yet");
    bench.second(1000, Outcome::Scored);
    bench.second(1000, Outcome::Scored);
    let lately = |bench: &Bench| bench.trial.lately(bench.now).unwrap().live;
    let total = |bench: &Bench| bench.trial.statistics().unwrap().arm(Arm::Live);
    assert_eq!(lately(&bench), total(&bench));
    let before = total(&bench).requests();
    bench.now = bench.now + Duration::from_secs(600);
    bench.second(100, Outcome::Scored);
    assert_eq!(lately(&bench).requests(), total(&bench).requests() - before);
}

#[test]
fn a_restarted_process_resumes_the_trial() {
    let ramp = serde_json::json!({
        "steps": {"steps": [{"share": 0.1, "time": "5s"}, {"share": 0.5}]}});
    let settings = serde_json::json!({"minimumTime": "60s", "maximumTime": "600s", "ramp": ramp});
    let mut bench = Bench::new(&settings);
    for _ in 0..20 {
        bench.second(1000, Outcome::Scored);
    }
    let written = serde_json::to_string(&bench.trial.progress(bench.now)).expect("JSON");
    let progress = serde_json::from_str(&written).expect("what was written");
    let mut later = Bench::resumed(&settings, progress);
    assert_eq!(later.trial.share(), Some(Share::new(0.5).unwrap()), "at once");
    later.count = bench.count;
    let seconds = later.run(Outcome::Scored).0;
    assert!((39..=41).contains(&seconds), "{seconds}: the time before counts");
    let seen = later.trial.verdict().map(|verdict| verdict.live + verdict.canary);
    assert_eq!(seen, Some(1000 * (19 + seconds)), "and so does what was seen");
}

#[test]
fn a_canary_that_disagrees_is_rolled_back_by_pairs_alone() {
    let mut settings = quick();
    settings["shadow"] = serde_json::json!(0.5);
    settings["signals"] = serde_json::json!({"disagreement": {}});
    let rolled_back = |disagrees: fn(u64) -> bool| {
        let mut bench = Bench::new(&settings);
        bench.second(1000, Outcome::Scored);
        (0..20).find_map(|_| {
            for pair in 0..100 {
                bench.trial.observe_pair(&Pair { same_top: !disagrees(pair), difference: None });
            }
            bench.second(0, Outcome::Scored)
        })
    };
    let rollback = Some(Conclusion::Rollback(Cause::Proved));
    assert_eq!(rolled_back(|pair| pair % 3 == 0), rollback);
    assert_eq!(rolled_back(|pair| pair % 20 == 0), None);
}

/// A second in which live takes so many times as long as usual; both arms do alike.
fn slowed(bench: &mut Bench, requests: u64, times: impl FnOnce(bool) -> f64) -> Option<Conclusion> {
    let has_canary = bench.trial.most_in_flight(None) > 0;
    let (share, times) = (bench.trial.share(), times(has_canary && bench.trial.share().is_some()));
    for _ in 0..requests {
        bench.count += 1;
        let draw = |step: f64| (bench.count as f64 * step).fract();
        let is_canary = share.is_some_and(|it| draw(0.414_213_562_373_095) < it.probability());
        let arm = if is_canary && has_canary { Arm::Canary } else { Arm::Live };
        let latency = Duration::from_secs_f64(times * (0.010 + 0.040 * draw(0.732)));
        let outcome = Outcome::Scored(draw(0.618_033_988_749_895));
        let seen = Observation { arm, latency: Some(latency), outcome };
        match has_canary {
            true => bench.trial.observe(share, &seen, bench.now),
            false => bench.trial.see(&seen),
        }
    }
    bench.now = bench.now + Duration::from_secs(1);
    bench.trial.tick(bench.now)
}

#[test]
fn a_canary_that_makes_both_arms_slow_alike_is_rolled_back_as_an_overload() {
    let mut bench = Bench::new(&quick());
    slowed(&mut bench, 1000, |_| 1.0);
    assert!(bench.trial.share().is_some());
    let mut bad = 0;
    let conclusion = (0..1000).find_map(|_| {
        slowed(&mut bench, 500, |has_canary| {
            bad += u32::from(has_canary);
            if has_canary { 20.0 } else { 1.0 }
        })
    });
    assert_eq!(conclusion, Some(Conclusion::Rollback(Cause::Overload)));
    assert_eq!(bad, 3);
    let reason = bench.trial.reason(Cause::Overload);
    assert!(reason.starts_with("overload: live was far worse"), "{reason}");
}

#[test]
fn a_canary_like_live_is_promoted_though_live_became_far_worse() {
    let mut bench = Bench::new(&quick());
    slowed(&mut bench, 1000, |_| 1.0);
    let mut paused = 0;
    let conclusion = (0..1000).find_map(|_| {
        paused += u32::from(bench.trial.is_held_back());
        slowed(&mut bench, 500, |_| 5.0)
    });
    assert_eq!(conclusion, Some(Conclusion::Promote(Cause::Proved)));
    assert!((1..10).contains(&paused), "{paused}: the pause has shown nothing");
}

#[test]
fn nothing_is_promoted_while_the_canary_is_held_back() {
    let mut settings = quick();
    settings["onStarved"] = serde_json::json!("ON_STARVED_PROMOTE");
    let mut bench = Bench::new(&settings);
    slowed(&mut bench, 1000, |_| 1.0);
    slowed(&mut bench, 500, |_| 20.0);
    assert!(bench.trial.is_held_back());
    let verdict = bench.trial.verdict().expect("the split has begun").clone();
    for decision in [Decision::Promote, Decision::Starved] {
        let verdict = Verdict { decision, ..verdict.clone() };
        assert_eq!(bench.trial.follow(Some(verdict), bench.now), None, "{decision:?}");
    }
    while bench.trial.is_held_back() {
        slowed(&mut bench, 500, |_| 1.0);
    }
    let verdict = Verdict { decision: Decision::Starved, ..verdict };
    let promote = Some(Conclusion::Promote(Cause::Starved));
    assert_eq!(bench.trial.follow(Some(verdict), bench.now), promote);
}

#[test]
fn a_pause_survives_a_restart() {
    let mut bench = Bench::new(&quick());
    slowed(&mut bench, 1000, |_| 1.0);
    slowed(&mut bench, 500, |_| 20.0);
    let saved = serde_json::to_string(&bench.trial.progress(bench.now)).expect("serialisable");
    let mut bench = Bench::resumed(&quick(), serde_json::from_str(&saved).expect("readable"));
    assert!(bench.trial.is_held_back() && bench.trial.most_in_flight(None) == 0);
    let conclusion = (0..1000)
        .find_map(|_| slowed(&mut bench, 500, |has_canary| if has_canary { 20.0 } else { 1.0 }));
    assert_eq!(conclusion, Some(Conclusion::Rollback(Cause::Overload)), "with its old level");
}
