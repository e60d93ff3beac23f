//! Calls that take hours.

use std::{collections::BTreeSet, time::Duration};

use outrigger_dispatch::{Purpose, Stop};

use crate::simulation::{Job, Plan, Report, at};

const HOUR: Duration = Duration::from_secs(3600);

/// A host whose calls take two hours, within 10 %.
fn slow() -> Plan {
    Plan { slots: vec![(at(0), 64)], service: (2 * HOUR, Duration::ZERO), ..Plan::steady() }
}

/// A job with a time limit of three hours a call.
fn job(hosts: Vec<Plan>) -> Job {
    let mut job = Job::new(hosts, vec![64; 24]);
    job.timeout = 3 * HOUR;
    job
}

/// The numbers of calls with rows of a batch that was cut, or sent more than once.
fn repeated(report: &Report) -> Vec<usize> {
    let batches = report.calls.iter().filter(|call| call.purpose != Purpose::Check);
    let batches: BTreeSet<_> = batches.map(|call| call.batch).collect();
    batches.into_iter().map(|batch| report.calls_of(batch).count()).filter(|n| *n > 1).collect()
}

#[test]
fn calls_of_hours_are_not_repeated() {
    for hosts in [1, 3] {
        for in_flight in [1, 64] {
            let mut job = job(vec![slow(); hosts]);
            job.settings.limits.max_in_flight = in_flight;
            let report = job.run(1);
            assert_eq!((report.stop, report.dead.len(), report.rows), (None, 0, 24 * 64));
            assert_eq!(repeated(&report), [0; 0], "{hosts} hosts, {in_flight} in flight");
        }
    }
}

#[test]
fn a_failure_does_not_stop_a_job_whose_calls_take_hours() {
    for hosts in [1, 3] {
        for in_flight in [1, 64] {
            // The first calls fail, so that only calls after the failure can succeed.
            let broken = vec![at(0)..at(1)];
            let mut job = job(vec![Plan { broken, ..slow() }; hosts]);
            job.settings.limits.max_in_flight = in_flight;
            let report = job.run(1);
            assert_eq!((report.stop, report.dead.len(), report.rows), (None, 0, 24 * 64));
            assert!(report.end.elapsed() > 2 * HOUR);
        }
    }
}

#[test]
fn hosts_that_fail_stop_a_job_when_its_other_calls_have_ended() {
    // One host answers nothing, and the others fail each call.
    let hangs = Plan { hangs: vec![at(0)..at(u64::MAX)], ..slow() };
    let broken = Plan { broken: vec![at(0)..at(u64::MAX)], ..slow() };
    let job = job(vec![hangs, broken.clone(), broken]);
    let report = job.run(1);
    assert_eq!((report.stop, report.dead.len(), report.rows), (Some(Stop::NoSuccess), 0, 0));
    let most = job.settings.patience + job.timeout;
    assert!(report.end.elapsed() <= most, "{:?}", report.end);
}
