//! Tests of the limits of tags and digests that only requests name.

use super::*;
use crate::tags::TagMachine;

fn of_churn(tag: &str) -> Selector {
    Selector::Tag(tag.parse().expect("a valid tag"))
}

fn asked(text: &str) -> Event {
    Event::Ask(name("churn"), of_churn(text))
}

fn policy(change: impl FnOnce(&mut Policy)) -> Policy {
    let mut policy = Policy::default();
    change(&mut policy);
    policy
}

fn limited(change: impl FnOnce(&mut Policy)) -> Bench {
    let mut bench = Bench::new();
    bench.handle(Event::Policy(policy(change)));
    bench
}

/// Look-ups, and machines examined, while `tags` tags of one model are asked for once each, and in
/// the five minutes after.
fn costs(tags: usize, most: usize) -> ([usize; 2], [u64; 2]) {
    let mut bench = limited(|policy| policy.max_tags = most);
    let canaries = CanaryTags { default_tag: "latest".parse().unwrap(), default_tags: [].into() };
    bench.handle(Event::Canaries(Some(canaries)));
    let before = (bench.lookups, bench.machines.counts().examined);
    for tag in 0..tags {
        bench.handle(asked(&format!("t{tag}")));
    }
    let asked = (bench.lookups, bench.machines.counts().examined);
    bench.pass(Duration::from_secs(300));
    let after = (bench.lookups, bench.machines.counts().examined);
    ([asked.0 - before.0, after.0 - asked.0], [asked.1 - before.1, after.1 - asked.1])
}

/// Each tag was followed for half an hour, and each of its look-ups examined all others.
#[test]
fn the_work_for_tags_asked_for_once_is_in_proportion_to_their_number() {
    let ([few_asked, few_after], few) = costs(100, 8);
    let ([many_asked, many_after], many) = costs(400, 8);
    // Each tag is looked up once, and its canary tag.
    assert_eq!((few_asked, many_asked), (200, 800));
    // Eight tags and their canary tags remain, looked up every 30 s.
    assert_eq!(few_after, many_after);
    assert!((140..=180).contains(&many_after), "{many_after} look-ups in five minutes");
    assert!(many[0] <= few[0] * 9 / 2, "{many:?} after {few:?}");
    assert!(many[1] <= few[1] * 11 / 10, "{many:?} after {few:?}");
}

#[test]
fn the_longest_unused_tag_goes_first_and_one_of_the_configuration_never() {
    let mut bench = limited(|policy| policy.max_tags = 3);
    let configured = TagKey { name: name("churn"), tag: "fixed".parse().unwrap() };
    bench.handle(Event::Follow(configured.clone()));
    for tag in ["a", "b", "c"] {
        bench.handle(asked(tag));
        bench.pass(Duration::from_secs(2));
    }
    bench.handle(Event::Used(vec![(name("churn"), of_churn("a"), bench.now)]));
    bench.handle(asked("d"));
    let mut known = |tag: &str| bench.machines.is_known(&name("churn"), &of_churn(tag));
    assert_eq!(["a", "b", "c", "d", "fixed"].map(&mut known), [true, false, true, true, true]);
    assert!(bench.machines.tag(&configured).is_some_and(TagMachine::is_configured));
    assert!(matches!(bench.answer("churn"), Answer::Waiting(_)), "never asked for");
    bench.handle(asked("b"));
    bench.pass(Duration::from_secs(2));
    let back = TagKey { name: name("churn"), tag: "b".parse().unwrap() };
    assert!(matches!(bench.machines.answer_tag(&back, bench.now), Answer::Ready(..)));
}

#[test]
fn tags_that_never_worked_make_room_first() {
    let mut bench = limited(|policy| policy.max_tags = 2);
    bench.handle(asked("old"));
    bench.pass(Duration::from_secs(60));
    // A canary tag that does not exist.
    bench.handle(asked("x_canary"));
    bench.handle(asked("new"));
    let known = |tag: &str| bench.machines.is_known(&name("churn"), &of_churn(tag));
    assert_eq!(["old", "x_canary", "new"].map(known), [true, false, true]);
}

/// They used to be looked up for as long as they were asked for.
#[test]
fn tags_of_refused_versions_leave_room_for_new_models() {
    let mut bench = limited(|policy| (policy.max_unproven, policy.max_absent) = (4, 10));
    for number in 0..20 {
        let refused = tag(&format!("refused-{number}"));
        bench.canaries.insert(refused.clone(), Digest::of(b"broken"));
        bench.handle(Event::Ask(refused.name, latest()));
        assert!(!bench.machines.is_full(bench.now), "{number}");
    }
    bench.handle(Event::Ask(name("a"), latest()));
    bench.pass(Duration::from_secs(2));
    assert!(matches!(bench.answer("a"), Answer::Ready(..)));
}

#[test]
fn the_longest_unused_name_without_an_answer_gives_way() {
    let mut bench = limited(|policy| policy.max_unproven = 2);
    let hold = |bench: &mut Bench, text| {
        bench.machines.handle(bench.now, 0.5, Event::Ask(name(text), latest()));
    };
    hold(&mut bench, "idle");
    hold(&mut bench, "used");
    bench.now = bench.now + Duration::from_secs(20);
    bench.handle(Event::Used(vec![(name("used"), latest(), bench.now)]));
    hold(&mut bench, "early");
    bench.now = bench.now + Duration::from_secs(10);
    hold(&mut bench, "new");
    let known = |text| bench.machines.is_known(&name(text), &latest());
    assert_eq!(["idle", "used", "early", "new"].map(known), [false, true, false, true]);
    assert!(bench.machines.is_full(bench.now));
}

/// Unknown names used to hold their places for as long as their answers were remembered.
#[test]
fn names_that_do_not_exist_leave_room_for_new_models() {
    let mut bench = limited(|policy| (policy.max_unproven, policy.max_absent) = (4, 10));
    for number in 0..100 {
        bench.handle(Event::Ask(name(&format!("nobody-{number}")), latest()));
        assert!(!bench.machines.is_full(bench.now));
    }
    assert_eq!(bench.lookups, 100, "each is looked up once");
    assert_eq!(bench.machines.names().len(), 10, "the latest answers are remembered");
    assert!(matches!(bench.answer("nobody-99"), Answer::Refused(_)));
    assert_eq!(bench.answer("nobody-0"), Answer::Waiting(None), "forgotten");
    bench.handle(Event::Ask(name("a"), latest()));
    bench.pass(Duration::from_secs(2));
    assert!(matches!(bench.answer("a"), Answer::Ready(..)));
    let lookups = bench.lookups;
    bench.pass(bench.machines.policy().poll_interval);
    assert_eq!(bench.answer("nobody-99"), Answer::Waiting(None), "asked for again, it is found");
    let polled = bench.lookups - lookups;
    assert!(polled <= 2, "{polled} look-ups for names that nobody asks for any more");
}

#[test]
fn listed_models_and_operators_get_a_place_when_there_is_none() {
    let mut bench = limited(|policy| policy.max_unproven = 1);
    let hold = |bench: &mut Bench, event| bench.machines.handle(bench.now, 0.5, event);
    hold(&mut bench, Event::Ask(name("pending"), latest()));
    assert!(bench.machines.is_full(bench.now));
    for event in [Event::AskListed(name("a"), latest()), Event::Load(name("b"), latest())] {
        bench.handle(event);
    }
    bench.handle(Event::Ask(name("c"), latest()));
    bench.pass(Duration::from_secs(2));
    for text in ["a", "b"] {
        assert!(matches!(bench.answer(text), Answer::Ready(..)), "{text}");
    }
    assert!(!bench.machines.is_known(&name("c"), &latest()), "refused");
}

#[test]
fn a_shorter_retention_deletes_at_once_what_is_overdue() {
    let mut bench = Bench::serving(&["b"]);
    let selector = Selector::Digest(model("a").digest);
    bench.handle(Event::Ask(name("a"), selector.clone()));
    bench.handle(Event::Unload { name: name("a"), selector, delete: false });
    let idle = Policy::default().idle_ttl;
    bench.pass(idle * 2);
    // Version `b` is wanted again.
    let shorter = policy(|it| (it.retain, it.idle_ttl) = (idle, idle * 3));
    let effects = bench.handle(Event::Policy(shorter));
    assert!(effects.iter().any(|it| is_deletion(it, &model("a"))), "{effects:?}");
    assert!(matches!(bench.answer("b"), Answer::Ready(..)));
}

#[test]
fn a_version_that_is_overdue_is_kept_if_its_tag_moves_to_it() {
    let mut bench = Bench::serving(&["a"]);
    bench.handle(Event::Follow(tag("a")));
    bench.canaries.insert(tag("a"), Digest::of(b"second"));
    bench.pass(Policy::default().poll_interval * 2);
    let selector = Selector::Digest(model("a").digest);
    bench.handle(Event::Unload { name: name("a"), selector, delete: false });
    bench.canaries.clear();
    // The clock's tick is late.
    bench.now = bench.now + Policy::default().retain;
    let effects = bench.handle(Event::Tag(tag("a"), tags::Event::LookUp));
    assert!(!effects.iter().any(|it| is_deletion(it, &model("a"))), "{effects:?}");
    assert!(matches!(bench.answer("a"), Answer::Ready(key, _) if key == model("a")));
}

fn is_deletion(effect: &Effect, of: &ModelKey) -> bool {
    matches!(effect, Effect::Model(key, model::Effect::Delete(_)) if key == of)
}
