use std::time::Duration;

use outrigger_core::{ModelName, ServableName, Version};

use super::*;

fn version(number: i64) -> ServableId {
    let name: ModelName = "m".parse().expect("a name");
    ServableId { name: ServableName::of(&name), version: Version(number) }
}

fn at(seconds: u64) -> Moment {
    Moment::at(Duration::from_secs(seconds))
}

fn missing() -> Standing {
    Standing::Missing(Failure::new(Reason::EngineUnavailable, "it is not ready"))
}

fn refused() -> Standing {
    Standing::Missing(Failure::new(Reason::EngineFailed, "no such file"))
}

/// Two servers and the version 1, and the reports that they make.
struct Two(Fleet);

impl Two {
    fn new() -> Self {
        let mut fleet = Fleet::new(vec!["a".into(), "b".into()]);
        fleet.add(version(1));
        Self(fleet)
    }

    /// The version is up on both.
    fn up() -> Self {
        let mut two = Self::new();
        assert_eq!(two.has(0, Standing::Ready), [FromEngine::Up(version(1))]);
        assert_eq!(two.has(1, Standing::Ready), []);
        two
    }

    fn report(
        &mut self,
        server: usize,
        state: Result<BTreeMap<ServableId, Standing>, Away>,
    ) -> Vec<FromEngine> {
        let generation = self.0.orders().generation;
        self.0.reported(server, Report { generation, state, remark: None });
        self.0.news().versions
    }

    fn has(&mut self, server: usize, standing: Standing) -> Vec<FromEngine> {
        self.report(server, Ok([(version(1), standing)].into()))
    }

    fn is_away(&mut self, server: usize) -> Vec<FromEngine> {
        let failure = Failure::new(Reason::EngineUnavailable, format!("{server}: refused"));
        self.report(server, Err(Away { failure, since: at(0) }))
    }

    fn may_load(&self, server: usize) -> bool {
        self.0.orders().wanted.get(&version(1)).is_some_and(|wanted| wanted.may_load(server))
    }

    fn failure(&self) -> Option<&str> {
        self.0.condition.failure.as_ref().map(|failure| &*failure.message)
    }
}

#[test]
fn a_version_comes_up_on_one_server_while_the_other_is_down() {
    let mut two = Two::new();
    assert_eq!(two.is_away(0), []);
    assert_eq!(two.has(1, Standing::Pending), []);
    assert_eq!(two.has(1, Standing::Ready), [FromEngine::Up(version(1))]);
    assert_eq!(two.0.condition.reachable, Some(true));
    assert_eq!(two.failure(), Some("1 of 2 servers: 0: refused"));
    assert!(two.may_load(0), "it follows");
    assert_eq!(two.has(0, Standing::Pending), []);
    assert_eq!(two.has(0, Standing::Ready), []);
    assert_eq!(two.failure(), None);
}

#[test]
fn a_server_that_has_not_heard_of_a_version_loads_it() {
    for has_reported in [false, true] {
        let mut two = Two::new();
        if has_reported {
            assert_eq!(two.report(0, Ok(BTreeMap::new())), []);
        }
        assert_eq!(two.has(1, Standing::Ready), [FromEngine::Up(version(1))]);
        assert_eq!(two.failure().map(|text| text.contains("a loads m")), Some(true));
    }
}

#[test]
fn a_version_waits_for_servers_of_which_none_answers() {
    let mut two = Two::new();
    assert_eq!([two.is_away(0), two.is_away(1)].concat(), []);
    assert_eq!(two.0.condition.reachable, Some(false));
    assert_eq!(two.failure(), Some("0: refused; 1: refused"));
    assert_eq!(two.has(0, Standing::Ready), [FromEngine::Up(version(1))]);
}

#[test]
fn servers_that_hang_have_been_away_since_the_last_of_their_answers() {
    let mut two = Two::up();
    let failure = Failure::new(Reason::Deadline, "no answer in time");
    two.report(0, Err(Away { failure, since: at(7) }));
    for (reason, since) in [(Reason::Deadline, at(5)), (Reason::EngineUnavailable, at(8))] {
        two.report(1, Err(Away { failure: Failure::new(reason, "no answer"), since }));
        let Condition { down_since, failure, .. } = &two.0.condition;
        assert_eq!(failure.as_ref().map(|failure| failure.reason), Some(reason));
        assert_eq!(*down_since, Some(since.max(at(7))));
    }
}

#[test]
fn a_version_fails_when_every_server_that_answers_refuses_it() {
    let mut two = Two::new();
    assert_eq!(two.has(0, refused()), [], "the other one may have it");
    let Standing::Missing(failure) = refused() else { panic!("a failure") };
    assert_eq!(two.has(1, missing()), [FromEngine::Failed(version(1), failure.clone())]);
    assert_eq!(two.has(1, missing()), [], "once");
    let mut two = Two::new();
    two.is_away(0);
    assert_eq!(two.has(1, refused()), [FromEngine::Failed(version(1), failure)]);
}

#[test]
fn a_server_that_lost_a_version_loads_it_while_another_one_has_it() {
    let mut two = Two::up();
    assert_eq!(two.has(0, missing()), []);
    assert!(two.may_load(0) && !two.may_load(1));
    assert_eq!(two.failure().map(|text| text.contains("a does not have m")), Some(true));
    assert_eq!(two.has(0, Standing::Pending), []);
    assert_eq!(two.has(1, missing()), [], "the other one loads it");
    assert_eq!(two.has(0, Standing::Ready), []);
}

#[test]
fn a_version_that_all_servers_lost_waits_until_it_is_added_again() {
    let mut two = Two::up();
    two.has(0, missing());
    assert_eq!(two.has(1, missing()), [FromEngine::Lost(version(1))]);
    assert!(!two.may_load(0));
    let mut two = Two::up();
    assert_eq!(two.is_away(0), []);
    assert_eq!(two.has(1, missing()), [FromEngine::Lost(version(1))]);
    // The last reports are not about the version that was added again.
    two.0.add(version(1));
    assert_eq!(two.0.news().versions, []);
    assert!(two.may_load(1));
    assert_eq!(two.has(1, Standing::Ready), [FromEngine::Up(version(1))]);
}

#[test]
fn a_version_is_not_lost_while_no_server_answers() {
    let mut two = Two::up();
    assert_eq!([two.is_away(0), two.is_away(1)].concat(), []);
    assert!(!two.may_load(0) && !two.may_load(1), "no server has it");
    assert_eq!(two.has(1, Standing::Ready), [], "it was up all the time");
}

#[test]
fn a_version_is_gone_when_each_server_has_dropped_it_or_does_not_answer() {
    let mut two = Two::up();
    two.0.remove(version(1));
    assert_eq!(two.has(0, Standing::Leaving), []);
    assert_eq!(two.report(0, Ok(BTreeMap::new())), []);
    assert_eq!(two.is_away(1), [FromEngine::Gone(version(1))]);
    assert_eq!(two.is_away(1), []);
}

#[test]
fn an_older_report_does_not_say_that_a_version_is_gone() {
    let mut two = Two::up();
    two.0.reported(0, Report { generation: 0, state: Ok(BTreeMap::new()), remark: None });
    two.0.remove(version(1));
    assert_eq!(two.report(1, Ok(BTreeMap::new())), []);
    assert_eq!(two.report(0, Ok(BTreeMap::new())), [FromEngine::Gone(version(1))]);
}
