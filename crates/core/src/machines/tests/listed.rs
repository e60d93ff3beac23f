//! Tests of tags that the source of a model lists.

use super::*;

fn numbered(tag: &str) -> TagKey {
    TagKey { name: name("a"), tag: tag.parse().expect("a valid tag") }
}

impl Bench {
    /// The source has these tags from now on, each with the digest of a content.
    fn list(&mut self, versions: &[(&str, &str)]) {
        self.canaries.clear();
        for (tag, content) in versions {
            self.canaries.insert(numbered(tag), Digest::of(content.as_bytes()));
        }
        let tags = versions.iter().map(|(tag, _)| numbered(tag).tag).collect();
        self.handle(Event::Listed(name("a"), tags));
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
fn tags_of_a_source_that_lists_them_no_more_idle_away() {
    let mut bench = Bench::new();
    bench.list(&[("7", "seven"), ("latest", "seven")]);
    bench.handle(Event::Unlisted(name("a")));
    assert_eq!(bench.loaded(), 1);
    bench.pass(bench.machines.policy().idle_ttl * 2);
    assert_eq!(bench.loaded(), 0);
}
