//! Tests with a simulated engine.

use super::{
    simulation::{Engine, Pattern, Played, Source, play, play_within},
    *,
};

const SECONDS: u64 = 12;

/// Four workers that take 10 ms each: 400 requests a second.
const FOUR: Engine = Engine { workers: 4, service: |_| Duration::from_millis(10) };
/// One worker: 500 requests a second.
const SERIAL: Engine = Engine { workers: 1, service: |_| Duration::from_millis(2) };
/// 10,000 requests a second, of 100 ms each.
const PARALLEL: Engine = Engine { workers: 1000, service: |_| Duration::from_millis(100) };

fn source(caller: u64, pattern: Pattern, deadline: u64) -> Source {
    let deadline = Duration::from_millis(deadline);
    Source { caller, pattern, deadline, body: Duration::ZERO, passed: Duration::ZERO }
}

fn open(caller: u64, rate: u32, deadline: u64) -> Source {
    source(caller, Pattern::Open(rate.into()), deadline)
}

fn closed(caller: u64, count: usize, deadline: u64) -> Source {
    source(caller, Pattern::Closed(count), deadline)
}

/// The answers of a play over those of an engine that is always busy with this rate.
#[allow(clippy::cast_precision_loss)]
fn goodput(played: &Played, rate: usize, seconds: u64) -> f64 {
    played.answered() as f64 / (rate as f64 * seconds as f64)
}

/// The longest 99th percentile of callers 1 to 4.
fn p99_of_others(played: &Played) -> Duration {
    (1..5).map(|it| played.by_caller[&it].p99()).max().expect("there are callers")
}

/// A request that waits for a run of low priority takes longer than usual, and would not be faster
/// with fewer others.
#[test]
fn a_run_beside_the_load_does_not_make_a_version_crowded() {
    let after = |mean: u64, beside: u64| {
        let (mut control, now) = (Control::default(), 1_000_000);
        let window = |now, mean: u64, beside| Measured {
            now,
            lasted: 100_000,
            answers: 100,
            missed: 0,
            took: 100 * mean,
            always: 4,
            in_flight: 4,
            has_waited: false,
            beside,
        };
        control.measure(&window(now, 1000, 0));
        control.measure(&window(now + 100_000, mean, beside));
        control.crowded_until > now
    };
    assert!(!after(1900, 0) && after(2100, 0));
    assert!(!after(2900, 1000) && after(3100, 1000));
    assert!(after(12_100, 100_000), "an engine with too much to do is slow for all");
}

#[test]
fn below_capacity_nothing_is_refused() {
    for sources in [vec![open(1, 320, 1000)], vec![open(1, 120, 200), open(2, 120, 200)]] {
        let played = play(FOUR, &sources, SECONDS, true, true);
        assert_eq!(
            (played.refused(), played.late()),
            (0, 0),
            "{sources:?}",
            sources = sources.len()
        );
    }
}

/// Without the load's decisions, every request waits beyond its deadline, and the engine works in
/// vain.
#[test]
fn at_four_times_the_capacity_the_goodput_stays() {
    for deadline in [100, 250, 1000] {
        let answered = |rate, is_guarded| {
            play(FOUR, &[open(1, rate, deadline)], SECONDS, is_guarded, true).answered()
        };
        let (at, beyond) = (answered(400, true), answered(1600, true));
        assert!(beyond * 10 >= at * 9, "{beyond} of {at} answers with deadlines of {deadline} ms");
        let unguarded = answered(1600, false);
        assert!(unguarded * 5 < at, "{unguarded} without the guard: the test shows nothing");
    }
}

/// Callers that send less than their share, beside one that sends its share, and ten times as much.
#[test]
fn a_caller_with_ten_times_its_share_does_not_double_the_latency_of_others() {
    for (engine, share, rate) in [(FOUR, 80, 40), (SERIAL, 100, 50), (FOUR, 80, 20)] {
        let others: Vec<_> = (1..5).map(|caller| open(caller, rate, 2000)).collect();
        let beside = |rate, is_guarded| {
            let sources: Vec<_> = others.iter().copied().chain([open(9, rate, 2000)]).collect();
            play(engine, &sources, 22, is_guarded, true)
        };
        let (fair, attack) = (beside(share, true), beside(share * 10, true));
        let (before, after) = (p99_of_others(&fair), p99_of_others(&attack));
        let limits = &attack.limits;
        assert!(
            after <= before * 2,
            "{after:?} beside the attacker, {before:?} before: {limits:?}"
        );
        let refused: usize = (1..5).map(|it| attack.by_caller[&it].refused).sum();
        assert_eq!(refused, 0, "requests of others are refused");
        assert!(attack.by_caller[&9].took.len() > 1000, "the attacker gets what others leave");
        let unguarded = p99_of_others(&beside(share * 10, false));
        assert!(unguarded > before * 10, "{unguarded:?} without the guard: the test shows nothing");
    }
}

#[test]
fn thousands_that_send_again_at_once_are_all_answered_in_turn() {
    for (engine, rate, most) in [(FOUR, 400, 12), (SERIAL, 500, 4), (PARALLEL, 10_000, 3000)] {
        let callers = (rate * 4).min(4096);
        let cold = play(engine, &[closed(1, callers, 10_000)], 4, true, false);
        assert_eq!((cold.refused(), cold.late()), (0, 0), "rate {rate}, from the start");
        let seconds = if rate > 1000 { 6 } else { SECONDS };
        let played = play(engine, &[closed(1, callers, 10_000)], seconds, true, true);
        assert_eq!((played.refused(), played.late()), (0, 0), "rate {rate}");
        let goodput = goodput(&played, rate, seconds - 2);
        assert!(goodput >= 0.95, "{goodput} of {rate} a second: {:?}", played.limits);
        let limits = &played.limits[4..];
        assert!(limits.iter().all(|limit| *limit <= most), "{rate}: {limits:?}");
    }
}

#[test]
fn with_short_deadlines_what_would_be_late_is_refused_and_the_goodput_stays() {
    for (engine, rate) in [(FOUR, 400), (SERIAL, 500), (PARALLEL, 10_000)] {
        let seconds = if rate > 1000 { 6 } else { SECONDS };
        let played = play(engine, &[closed(1, 4096, 200)], seconds, true, true);
        let goodput = goodput(&played, rate, seconds - 2);
        assert!(goodput >= 0.8, "{goodput} of {rate} a second: {:?}", played.limits);
        assert!(played.refused() > 0);
        let played = play(engine, &[open(1, rate as u32 * 2, 1000)], seconds, true, true);
        let goodput = self::goodput(&played, rate, seconds - 2);
        assert!(
            goodput >= 0.9,
            "{goodput} of {rate} a second in an open loop: {:?}",
            played.limits
        );
    }
}

#[test]
fn callers_that_count_from_long_before_their_requests_arrive_get_answers_in_time() {
    for (engine, rate) in [(FOUR, 400), (SERIAL, 500)] {
        let passed = Duration::from_millis(120);
        let far = Source { passed, ..open(1, rate as u32 * 3, 200) };
        let played = play(engine, &[far], SECONDS, true, true);
        let goodput = goodput(&played, rate, SECONDS - 2);
        assert!(
            goodput >= 0.8,
            "{goodput} of {rate} a second, {} late, {} refused",
            played.late(),
            played.refused()
        );
    }
}

/// Requests whose bodies are on their way are admitted beyond the limit, and when the bodies come
/// they do not keep others waiting for long.
#[test]
fn a_caller_with_late_bodies_does_not_double_the_latency_of_others() {
    let others: Vec<_> = (1..5).map(|caller| open(caller, 50, 2000)).collect();
    let beside = |rate| {
        let attacker = Source { body: Duration::from_millis(8), ..open(9, rate, 2000) };
        let sources: Vec<_> = others.iter().copied().chain([attacker]).collect();
        play(SERIAL, &sources, 22, true, true)
    };
    let (fair, attack) = (beside(100), beside(1000));
    let (before, after) = (p99_of_others(&fair), p99_of_others(&attack));
    let limits = &attack.limits;
    assert!(after <= before * 2, "{after:?} beside the attacker, {before:?} before: {limits:?}");
}

#[test]
fn an_engine_that_slows_down_and_recovers_is_followed() {
    fn service(at: Duration) -> Duration {
        match at.as_secs() {
            8..20 => Duration::from_millis(300),
            _ => Duration::from_millis(100),
        }
    }
    let engine = Engine { workers: 100, service };
    let played = play(engine, &[closed(1, 2000, 10_000)], 40, true, false);
    assert_eq!((played.refused(), played.late()), (0, 0));
    let goodput = played.answered() as f64 / (1000.0 * 28.0 + 333.0 * 12.0);
    assert!(goodput >= 0.95, "{goodput}: {:?}", played.limits);
    assert!(played.limits[38] < 300, "{:?}", played.limits);
}

#[test]
fn under_lasting_overload_the_limit_stays() {
    let played = play(SERIAL, &[closed(1, 500, 10_000)], 120, true, true);
    assert_eq!(played.refused(), 0);
    assert!(played.limits[10..].iter().all(|limit| *limit <= 4), "{:?}", played.limits);
}

/// The engine stays busy although each body arrives late after its request was admitted.
#[test]
fn bodies_that_are_on_their_way_do_not_leave_the_engine_idle() {
    let far = Source { body: Duration::from_millis(30), ..closed(1, 1000, 10_000) };
    let played = play(SERIAL, &[far], SECONDS, true, true);
    let goodput = goodput(&played, 500, SECONDS - 2);
    assert!(goodput >= 0.9, "{goodput}: {:?}", played.limits);
}

fn ask(caller: u64, now: Instant) -> Ask {
    Ask { caller, now, deadline: now + Duration::from_secs(60), is_first: false }
}

fn waiting(entry: Result<Entry, Late>) -> Waiting {
    match entry {
        Ok(Entry::Waiting(waiting)) => waiting,
        other => panic!("not waiting: {other:?}"),
    }
}

#[tokio::test]
async fn a_request_that_gives_up_leaves_its_turn_to_the_next() {
    let (load, now) = (Arc::new(Load::default()), Instant::now());
    let mut running: Vec<_> = (0..FIRST).map(|_| load.enter(&ask(1, now)).unwrap()).collect();
    let [first, mut second] = [1, 1].map(|caller| waiting(load.enter(&ask(caller, now))));
    drop(first);
    running.pop();
    second.admitted().await.expect("its turn has come");
    assert!(load.queue().is_empty() && load.waiting.load(Relaxed) == 0);
}

#[tokio::test]
async fn one_that_was_admitted_and_has_gone_away_leaves_its_place() {
    let (load, now) = (Arc::new(Load::default()), Instant::now());
    let mut running: Vec<_> = (0..FIRST).map(|_| load.enter(&ask(1, now)).unwrap()).collect();
    let [first, mut second] = [1, 1].map(|caller| waiting(load.enter(&ask(caller, now))));
    running.pop();
    drop(first);
    second.admitted().await.expect("the first did not take it");
    assert_eq!(load.in_flight.load(Relaxed), FIRST - 1);
}

#[tokio::test]
async fn one_that_lost_its_place_comes_before_the_others_of_its_caller() {
    let (load, now) = (Arc::new(Load::default()), Instant::now());
    let mut running: Vec<_> = (0..FIRST).map(|_| load.enter(&ask(1, now)).unwrap()).collect();
    let other = waiting(load.enter(&ask(2, now)));
    let mut later = waiting(load.enter(&ask(1, now)));
    let again = waiting(load.enter(&Ask { is_first: true, ..ask(1, now) }));
    let mut later = Box::pin(later.admitted());
    for mut admitted in [other, again] {
        running.pop();
        running.push(Entry::Running(admitted.admitted().await.expect("in turn")));
        assert!(futures::poll!(later.as_mut()).is_pending());
    }
    running.pop();
    later.await.expect("the last");
}

#[tokio::test]
async fn one_that_can_not_be_answered_in_time_any_more_is_refused_at_its_turn() {
    let (load, now) = (Arc::new(Load::default()), Instant::now());
    let mut running: Vec<_> = (0..FIRST).map(|_| load.enter(&ask(1, now)).unwrap()).collect();
    let mut late = waiting(load.enter(&Ask { deadline: now, ..ask(1, now) }));
    let mut next = waiting(load.enter(&ask(1, now)));
    running.pop();
    assert!(late.admitted().await.is_err());
    next.admitted().await.expect("it does not take the place");
}

#[test]
fn a_request_that_enters_at_once_counts_and_waits_for_no_turn() {
    let (load, now) = (Arc::new(Load::default()), Instant::now());
    let deadline = now + Duration::from_secs(1);
    let ask = Ask { caller: 1, now, deadline, is_first: false };
    let mut running = Vec::new();
    let _waiting = loop {
        match load.enter(&ask).expect("not late") {
            Entry::Running(entered) => running.push(entered),
            Entry::Waiting(waiting) => break waiting,
        }
    };
    let before = load.in_flight.load(SeqCst);
    let entered = load.enter_at_once(now);
    assert_eq!(load.in_flight.load(SeqCst), before + 1);
    entered.answered();
    assert_eq!(load.in_flight.load(SeqCst), before);
}

#[tokio::test]
async fn beyond_the_limit_of_a_model_requests_wait_in_turn_whatever_their_version() {
    let model = Arc::<ModelLoad>::default();
    let now = Instant::now();
    let [one, other] = [0, 1].map(|_| Load::of(&model, Arc::default()));
    one.allow(2);
    let enter = |load: &Arc<Load>, caller| load.enter(&ask(caller, now));
    let first = enter(&one, 1).expect("one of two");
    let second = enter(&other, 2).expect("two of two");
    assert!(one.is_crowded(now) && other.is_crowded(now));
    let mut third = waiting(enter(&one, 1));
    let mut fourth = waiting(enter(&other, 2));
    assert_eq!((third.late(), fourth.late()), (Late::Model, Late::Model));
    drop(first);
    let fourth = fourth.admitted().await.expect("the versions take turns");
    assert!(futures::poll!(std::pin::pin!(third.admitted())).is_pending());
    drop(second);
    drop(third.admitted().await.expect("the next"));
    one.allow(0);
    let more: Vec<_> = (0..5).map(|_| enter(&one, 1).expect("no limit")).collect();
    assert!(more.iter().all(|entry| matches!(entry, Entry::Running(_))));
    drop((fourth, more));
    assert_eq!((model.in_flight.load(SeqCst), model.waiting.load(SeqCst)), (0, 0));
}

/// All of them wait in turn for the requests that may be in progress, and the engine stays as busy as
/// with one caller.
#[test]
fn callers_beyond_the_limit_of_their_model_get_as_many_answers_as_one_caller() {
    const ALL: usize = 1200;
    let slow = Engine { workers: 1000, service: |_| Duration::from_millis(800) };
    for engine in [slow, FOUR] {
        let answered = |callers: usize| {
            let sources: Vec<_> =
                (0..callers).map(|it| closed(it as u64, ALL / callers, 10_000)).collect();
            let played = play_within(512, engine, &sources, 20);
            assert_eq!((played.refused(), played.late()), (0, 0), "{callers} callers");
            let least = played.by_caller.values().map(|it| it.took.len()).min().expect("callers");
            let share = played.answered() / callers;
            assert!(least * 2 > share, "{least} answers of {share} for one of {callers} callers");
            played.answered()
        };
        let alone = answered(1);
        for callers in [2, 3, 8, 32] {
            let together = answered(callers);
            assert!(together * 10 >= alone * 9, "{together} of {alone} with {callers} callers");
        }
    }
}

#[tokio::test]
async fn requests_that_wait_for_an_engine_that_is_given_up_get_its_failure() {
    let turns = Arc::<outrigger_score::Turns>::default();
    let now = Instant::now();
    let load = Load::of(&Arc::default(), Arc::new(Flight::new(Arc::clone(&turns))));
    let _running: Vec<_> = (0..FIRST).map(|_| load.enter(&ask(1, now)).unwrap()).collect();
    let mut waits = waiting(load.enter(&ask(1, now)));
    assert_eq!(waits.late(), Late::Crowd(None));
    let failure = Failure::new(outrigger_core::Reason::EngineUnavailable, "it does not answer");
    let outage = |is_over_patience| {
        Some(outrigger_score::Outage { failure: failure.clone(), is_over_patience })
    };
    turns.set_outage(outage(false));
    assert_eq!(waits.late(), Late::Engine(failure.clone()));
    let mut admitted = Box::pin(waits.admitted());
    assert!(futures::poll!(admitted.as_mut()).is_pending());
    turns.set_outage(outage(true));
    assert_eq!(admitted.await.expect_err("given up"), Late::Engine(failure.clone()));
}
