//! Rows at fault, and failures that are not theirs.

use std::time::Duration;

use outrigger_dispatch::{BatchId, HostId, MaxErrors, Purpose, Reason, Share, Stop};
use outrigger_resilience::Class;

use crate::simulation::{Job, Plan, at};

const BAD: BatchId = BatchId(3);

/// A job of 8 batches of 1,000 rows on this number of hosts.
fn job(hosts: usize) -> Job {
    Job::new(vec![Plan::steady(); hosts], vec![1000; 8])
}

/// The most calls with the rows of a batch that has one row at fault: two whole tries, and
/// 2 log2 n + 1 more.
fn most_calls(rows: u32) -> usize {
    2 + 2 * f64::from(rows).log2().ceil() as usize + 1
}

#[test]
fn check_34_a_poison_row_is_isolated_in_few_calls() {
    for row in [0, 1, 499, 500, 998, 999] {
        for hosts in [2, 3, 1] {
            let mut job = job(hosts);
            job.faults.poison.insert((BAD, row));
            let report = job.run(u64::from(row));
            let dead: Vec<_> = report.dead.iter().map(|d| (d.batch, d.row, d.reason)).collect();
            assert_eq!(dead, [(BAD, row, Reason::ModelError)], "{hosts} hosts");
            assert_eq!(report.rows, 7999);
            let calls = report.calls_of(BAD).count();
            assert!(calls <= most_calls(1000), "row {row}, {hosts} hosts: {calls} calls");
        }
    }
}

#[test]
fn check_34_a_poison_row_in_the_only_batch_is_isolated_too() {
    for hosts in [1, 2, 3] {
        let mut job = Job::new(vec![Plan::steady(); hosts], vec![1000]);
        job.faults.poison.insert((BatchId(0), 700));
        let report = job.run(1);
        assert_eq!(report.dead.len(), 1, "{hosts} hosts");
        assert_eq!((report.dead[0].row, report.rows), (700, 999));
        let calls = report.calls_of(BatchId(0)).count();
        assert!(calls <= most_calls(1000), "{hosts} hosts: {calls} calls");
    }
}

#[test]
fn a_row_that_is_never_processed_is_dead_within_a_bound() {
    for class in [Class::Unavailable, Class::Overloaded, Class::Ambiguous, Class::Timeout] {
        for hosts in [1, 2, 3] {
            for rows in [1000, 1] {
                let mut job = Job::new(vec![Plan::steady(); hosts], vec![rows; 8]);
                job.faults.refused.insert((BAD, rows / 2), class);
                let report = job.run(7);
                let dead: Vec<_> = report.dead.iter().map(|d| (d.batch, d.row, d.reason)).collect();
                let expected = [(BAD, rows / 2, Reason::ModelError)];
                assert_eq!(dead, expected, "{class:?}, {hosts} hosts");
                assert_eq!((report.rows, report.stop), (u64::from(8 * rows) - 1, None));
                let bound = at(if class == Class::Overloaded { 120 } else { 15 } * 60_000);
                assert!(report.end < bound, "{class:?}, {hosts} hosts: {:?}", report.end);
            }
        }
    }
}

#[test]
fn rows_of_hosts_that_do_not_process_many_calls_are_not_dead() {
    for hosts in [1, 2, 3] {
        let host = Plan { flaps: 0.4, ..Plan::steady() };
        let report = Job::new(vec![host; hosts], vec![1; 2000]).run(3);
        assert_eq!((report.dead.len(), report.rows), (0, 2000), "{hosts} hosts");
    }
}

#[test]
fn hosts_that_are_away_behind_a_proxy_are_no_evidence() {
    let away = Plan { away: vec![at(500)..at(7_200_000)], has_proxy: true, ..Plan::steady() };
    for others in [0, 1] {
        let mut hosts = vec![away.clone(); 2];
        hosts.extend(vec![Plan::steady(); others]);
        let report = Job::new(hosts, vec![100; 400]).run(1);
        assert_eq!((report.dead.len(), report.rows, report.stop), (0, 40_000, None));
    }
}

#[test]
fn check_36_a_dead_row_has_its_history() {
    let mut job = job(2);
    job.faults.poison.insert((BAD, 7));
    let report = job.run(1);
    let dead = &report.dead[0];
    assert_eq!((dead.hosts.len(), &*dead.message), (2, "Ambiguous"));
    assert!(dead.attempts >= 4 && dead.last > dead.first && dead.is_last, "{dead:?}");
}

#[test]
fn check_33_a_single_row_is_not_sent_again_after_two_failures() {
    let mut job = Job::new(vec![Plan::steady(); 4], vec![1; 100]);
    job.faults.poison.insert((BAD, 0));
    let report = job.run(1);
    assert_eq!(report.calls_of(BAD).count(), 2);
    assert_eq!((report.dead.len(), report.dead[0].attempts), (1, 2));
}

#[test]
fn check_35_a_row_that_ends_its_host_stops_after_two_hosts() {
    for (rows, row) in [(1000, 321), (1, 0)] {
        let mut job = Job::new(vec![Plan::steady(); 5], vec![rows; 40]);
        job.faults.killers.insert((BAD, row));
        let report = job.run(1);
        let ended = report.kills.iter().filter(|kills| **kills > 0).count();
        assert_eq!(ended, 2, "{:?}", report.kills);
        let dead: Vec<_> = report.dead.iter().map(|d| (d.batch, d.row, d.reason)).collect();
        assert_eq!(dead, [(BAD, row, Reason::HostLost)]);
    }
}

#[test]
fn rows_that_have_ended_hosts_before_are_sent_to_two_with_these() {
    for ended in [vec![HostId(3)], vec![HostId(3), HostId(1)]] {
        let mut job = Job::new(vec![Plan::steady(); 5], vec![64; 40]);
        job.faults.killers.insert((BatchId(0), 9));
        job.ended.insert(BatchId(0), ended.clone());
        let report = job.run(1);
        let dead: Vec<_> = report.dead.iter().map(|d| (d.batch, d.row, d.reason)).collect();
        assert_eq!(dead, [(BatchId(0), 9, Reason::HostLost)]);
        let kills = report.kills.iter().zip(0..).filter(|(kills, _)| **kills > 0);
        let mut hosts: Vec<_> = kills.map(|(_, host)| HostId(host)).chain(ended).collect();
        hosts.sort_unstable();
        hosts.dedup();
        assert_eq!(hosts.len(), 2, "{:?}", report.kills);
    }
}

#[test]
fn with_a_row_that_was_scored_before_a_job_of_rows_at_fault_ends() {
    for hosts in [1, 3] {
        for has_scored_row in [true, false] {
            let mut job = Job::new(vec![Plan::steady(); hosts], vec![4; 5]);
            let rows = (0..5).flat_map(|batch| (0..4).map(move |row| (BatchId(batch), row)));
            job.faults.poison.extend(rows);
            job.has_scored_row = has_scored_row;
            let report = job.run(1);
            let (dead, stop) = if has_scored_row { (20, None) } else { (0, Some(Stop::NoSuccess)) };
            assert_eq!((report.dead.len(), report.stop), (dead, stop), "{hosts} hosts");
            let checks = report.calls.iter().filter(|call| call.purpose == Purpose::Check);
            assert!(checks.clone().all(|call| call.batch == BatchId::NONE));
            assert_eq!(checks.count() > 0, has_scored_row);
        }
    }
}

#[test]
fn many_rows_at_fault_are_isolated_too() {
    let mut job = Job::new(vec![Plan::steady(); 3], vec![256; 60]);
    let faults = (0..60).flat_map(|batch| [3, 77, 200].map(|row| (BatchId(batch), row)));
    job.faults.poison.extend(faults);
    let report = job.run(1);
    assert_eq!((report.dead.len(), report.stop), (180, None));
}

#[test]
fn a_part_of_the_table_at_fault_is_dead_and_the_rest_scored() {
    let mut job = Job::new(vec![Plan::steady(); 2], vec![16; 400]);
    let faults = (100..300).flat_map(|batch| (0..16).map(move |row| (BatchId(batch), row)));
    job.faults.poison.extend(faults);
    let report = job.run(1);
    assert_eq!((report.dead.len(), report.rows, report.stop), (3200, 3200, None));
}

#[test]
fn an_outage_is_no_evidence_against_rows() {
    let minutes = |minutes: u64| at(minutes * 60_000);
    for hangs in [false, true] {
        let mut plan = Plan::steady();
        let outage = minutes(1)..minutes(41);
        match hangs {
            true => plan.hangs = vec![outage],
            false => plan.away = vec![outage],
        }
        let report = Job::new(vec![plan; 3], vec![64; 20_000]).run(1);
        assert_eq!((report.dead.len(), report.stop), (0, None));
        assert!(report.end > minutes(41));
        let cut = report.calls.iter().filter(|call| call.rows.len() < 64 && !call.is_probe);
        let checks =
            |call: &&outrigger_dispatch::Call| call.purpose != outrigger_dispatch::Purpose::Check;
        assert_eq!(cut.filter(checks).count(), 0, "nothing is bisected");
    }
}

#[test]
fn a_model_that_fails_for_a_while_kills_no_rows() {
    for rows in [1, 64] {
        let broken = vec![at(10_000)..at(70_000)];
        let plan = Plan { broken, ..Plan::steady() };
        let report = Job::new(vec![plan; 3], vec![rows; 20_000]).run(1);
        assert_eq!((report.dead.len(), report.stop), (0, None));
    }
}

#[test]
fn a_job_whose_hosts_answer_with_failures_only_is_stopped() {
    for hosts in [1, 3] {
        let plan = Plan { broken: vec![at(0)..at(u64::MAX)], ..Plan::steady() };
        let job = Job::new(vec![plan; hosts], vec![64; 1000]);
        let report = job.run(1);
        assert_eq!((report.stop, report.dead.len()), (Some(Stop::NoSuccess), 0));
        let patience = job.settings.patience;
        assert!(report.end.elapsed() < patience + Duration::from_secs(60), "{:?}", report.end);
        assert!(report.calls.len() < 200 * hosts, "{} calls", report.calls.len());
    }
}

#[test]
fn credentials_that_expire_stop_the_job_and_kill_no_rows() {
    for hosts in [1, 3] {
        for rows in [1, 64] {
            let expired = at(30_000);
            let refuses = vec![expired..at(u64::MAX)];
            let job = Job::new(vec![Plan { refuses, ..Plan::steady() }; hosts], vec![rows; 20_000]);
            let report = job.run(1);
            assert_eq!((report.stop, report.dead.len()), (Some(Stop::NoSuccess), 0));
            assert!(report.rows > 0);
            let stopped = report.end.since(expired);
            assert!(stopped < job.settings.patience + Duration::from_secs(60), "{stopped:?}");
            let after = report.calls.len() as u64 - report.round_trips.len() as u64;
            assert!(after < 200 * hosts as u64, "{after} calls");
        }
    }
}

#[test]
fn check_37_too_many_dead_rows_stop_the_job() {
    let share = Share { most: 0.1, of_rows: 200 };
    for max_errors in
        [MaxErrors { rows: Some(20), share: None }, MaxErrors { rows: None, share: Some(share) }]
    {
        let mut job = Job::new(vec![Plan::steady(); 2], vec![16; 400]);
        job.faults.poison.extend((100..400).flat_map(|b| (0..16).map(move |r| (BatchId(b), r))));
        job.settings.max_errors = max_errors;
        let report = job.run(1);
        assert_eq!(report.stop, Some(Stop::MaxErrors));
        assert!((21..200).contains(&report.dead.len()), "{}", report.dead.len());
    }
}
