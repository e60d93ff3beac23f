//! Tests of tags that the source of a model lists.

use super::*;

fn numbered(tag: &str) -> TagKey {
    TagKey { name: name("a"), tag: tag.parse().expect("a valid tag") }
}

impl Bench {
    /// The source has these tags from now on, each with the digest of a content.
    fn list(&mut self, versions: &[(&str, &str)]) {
        self.list_with(versions, false);
    }

    /// With `has_more`, it has further versions.
    fn list_with(&mut self, versions: &[(&str, &str)], has_more: bool) {
        self.canaries.clear();
        for (tag, content) in versions {
            self.canaries.insert(numbered(tag), Digest::of(content.as_bytes()));
        }
        let tags: BTreeSet<_> = versions.iter().map(|(tag, _)| numbered(tag).tag).collect();
        let numbers = tags.iter().rev().filter(|tag| **tag != numbered("latest").tag);
        let versions = numbers.cloned().collect();
        let latest = Some(Latest { tag: numbered("latest").tag, versions, has_more });
        self.handle(Event::Listed(name("a"), Listed { tags, latest }));
    }

    fn reason(&self, tag: &str) -> Option<Reason> {
        match self.machines.answer_tag(&numbered(tag), self.now) {
            Answer::Refused(failure) => Some(failure.reason),
            _ => None,
        }
    }

    /// The content that answers for `tag`.
    fn content(&self, tag: &str) -> Option<&'static str> {
        let contents = ["six", "seven", "eight", "nine", "broken"];
        let Answer::Ready(key, _) = self.machines.answer_tag(&numbered(tag), self.now) else {
            return None;
        };
        contents.into_iter().find(|content| Digest::of(content.as_bytes()) == key.digest)
    }

    fn loaded(&self) -> usize {
        self.machines.models().filter(|model| model.state().in_engine()).count()
    }
}

#[test]
fn listed_versions_are_up_without_a_request_and_others_leave() {
    let mut bench = Bench::new();
    bench.list(&[("6", "six"), ("7", "seven"), ("latest", "seven")]);
    assert_eq!(
        ["6", "7", "latest"].map(|it| bench.content(it)),
        [Some("six"), Some("seven"), Some("seven")]
    );
    bench.list(&[("7", "seven"), ("8", "eight"), ("latest", "eight")]);
    assert_eq!(
        ["6", "7", "latest"].map(|it| bench.content(it)),
        [None, Some("seven"), Some("eight")]
    );
    assert_eq!(bench.loaded(), 2, "the sixth has left the engine");
    bench.pass(bench.machines.policy().idle_ttl * 3);
    assert_eq!(bench.content("7"), Some("seven"), "no request is needed");
}

#[test]
fn a_version_that_is_removed_gives_way_to_the_one_before() {
    let mut bench = Bench::new();
    bench.list(&[("8", "eight"), ("latest", "eight")]);
    bench.list(&[("7", "seven"), ("latest", "seven")]);
    assert_eq!(
        ["7", "8", "latest"].map(|it| bench.content(it)),
        [Some("seven"), None, Some("seven")]
    );
    assert_eq!(bench.loaded(), 1);
}

#[test]
fn versions_that_are_not_listed_answer_until_a_listed_one_is_up() {
    let mut bench = Bench::new();
    bench.list(&[("7", "seven"), ("latest", "seven")]);
    bench.list(&[("8", "broken"), ("latest", "broken")]);
    assert_eq!(
        ["7", "8", "latest"].map(|it| bench.content(it)),
        [Some("seven"), None, Some("seven")]
    );
    bench.list(&[("9", "nine"), ("latest", "nine")]);
    assert_eq!(
        ["7", "9", "latest"].map(|it| bench.content(it)),
        [None, Some("nine"), Some("nine")]
    );
    bench.pass(bench.machines.policy().idle_ttl * 3);
    bench.handle(Event::Tick);
    let tags: Vec<_> = bench.machines.tags().map(|(key, _)| key.tag.as_str()).collect();
    assert_eq!(tags, ["9", "latest"], "the tags that are gone are forgotten");
}

#[test]
fn the_next_version_answers_where_the_newest_cannot_be_served() {
    let mut bench = Bench::new();
    let broken = [("9", "broken"), ("latest", "broken")];
    bench.list_with(&broken, true);
    assert_eq!(bench.machines.answer_tag(&numbered("latest"), bench.now), Answer::Waiting(None));
    assert!(!bench.machines.has_settled(&name("a"), bench.now), "the source has others");
    assert_eq!(bench.machines.failing(&name("a")), [Digest::of(b"broken")].into());
    bench.list(&[("9", "broken"), ("7", "seven"), ("latest", "broken")]);
    assert_eq!(["7", "latest"].map(|it| bench.content(it)), [Some("seven"); 2]);
    assert_eq!(bench.reason("9"), Some(Reason::ImageInvalid));
    assert!(bench.machines.has_settled(&name("a"), bench.now));
    let tag = bench.machines.tag(&numbered("latest")).expect("known");
    assert_eq!(tag.last_known_good(), Some(Digest::of(b"seven")), "a restart keeps it");
    bench.list(&[("9", "broken"), ("8", "eight"), ("latest", "broken")]);
    assert_eq!(["7", "latest"].map(|it| bench.content(it)), [None, Some("eight")], "a newer one");
    bench.list(&[("9", "nine"), ("latest", "nine")]);
    assert_eq!(
        ["8", "9", "latest"].map(|it| bench.content(it)),
        [None, Some("nine"), Some("nine")]
    );
}

#[test]
fn without_any_version_that_can_be_served_the_reason_of_the_newest_is_the_answer() {
    let mut bench = Bench::new();
    bench.list_with(&[("9", "broken"), ("latest", "broken")], true);
    bench.list(&[("9", "broken"), ("latest", "broken")]);
    assert_eq!(bench.reason("latest"), Some(Reason::ImageInvalid));
    assert!(bench.machines.has_settled(&name("a"), bench.now));
}

#[test]
fn a_version_that_is_not_listed_any_more_and_its_successor_do_not_alternate() {
    let mut bench = Bench::new();
    bench.list(&[("7", "seven"), ("8", "eight"), ("latest", "eight")]);
    bench.list(&[("7", "seven"), ("latest", "seven")]);
    assert_eq!(
        ["7", "8", "latest"].map(|it| bench.content(it)),
        [Some("seven"), None, Some("seven")]
    );
}

#[test]
fn a_version_that_is_lost_with_its_engine_is_not_replaced_by_an_older_one() {
    let mut bench = Bench::new();
    bench.list(&[("7", "seven"), ("8", "eight"), ("latest", "eight")]);
    let eight = ModelKey { name: name("a"), digest: Digest::of(b"eight") };
    let id = bench.machines.model(&eight).and_then(|model| model.state().servable().cloned());
    let lost = FromEngine::Lost(id.expect("it is served"));
    bench.machines.handle(bench.now, 0.5, Event::Engine(EngineId::default(), lost));
    let tag = bench.machines.tag(&numbered("latest")).expect("known");
    assert_eq!(tag.serving(), Some(eight.digest));
}

#[test]
fn tags_of_a_source_that_lists_them_no_more_idle_away() {
    let mut bench = Bench::new();
    bench.list(&[("7", "seven"), ("latest", "seven")]);
    bench.handle(Event::Unlisted(name("a")));
    assert_eq!(bench.loaded(), 1);
    bench.pass(bench.machines.policy().idle_ttl * 2);
    assert_eq!(bench.loaded(), 0);
}
