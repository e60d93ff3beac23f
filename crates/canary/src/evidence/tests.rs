use super::{
    Side, bound,
    events::{Table, Tally, ceiling, log_evidence},
    mixture::{LogWealth, Prior},
    proportion,
    rank::{self, Ranks},
};

const SIDES: [Side; 2] = [Side::More, Side::Less];

/// The expected wealth when each of `requests` is given to the canary with probability
/// `share`: the mean over all assignments.
fn average<T>(requests: &[T], share: f64, wealth: impl Fn(&[(&T, bool)]) -> f64) -> f64 {
    let ways = 0..1_u32 << requests.len();
    let worth = ways.map(|way| {
        let assigned = requests.iter().enumerate();
        let assigned: Vec<_> =
            assigned.map(|(at, request)| (request, way >> at & 1 == 1)).collect();
        let chance = |canary: bool| if canary { share } else { 1.0 - share };
        assigned.iter().map(|(_, canary)| chance(*canary)).product::<f64>() * wealth(&assigned)
    });
    worth.sum()
}

fn table(assigned: &[(&bool, bool)], share: f64, guess: f64) -> Table {
    let tally = |of: bool| {
        let those = assigned.iter().filter(|(_, canary)| *canary == of);
        Tally {
            events: those.clone().filter(|(event, _)| **event).count() as u64,
            requests: those.count() as u64,
        }
    };
    Table { share, guess, live: tally(false), canary: tally(true) }
}

/// Outcomes of eight requests: the tests must be valid for any of them, dependent ones
/// included.
const OUTCOMES: [[bool; 8]; 3] = [
    [true, false, false, true, false, false, false, false],
    [true; 8],
    [false, false, false, false, true, true, true, true],
];

#[test]
fn a_bet_on_the_arms_is_fair_for_any_outcomes() {
    for (outcomes, share, guess) in
        OUTCOMES.iter().flat_map(|outcomes| [(outcomes, 0.1, 0.3), (outcomes, 0.7, 0.05)])
    {
        for side in SIDES {
            let wealth = |assigned: &[(&bool, bool)]| {
                let tables = [table(assigned, share, guess)].into_iter();
                log_evidence(tables, side, 0.0, Prior::UNIFORM).exp()
            };
            let average = average(outcomes, share, wealth);
            assert!((average - 1.0).abs() < 1e-9, "{average} {side:?} {share}");
        }
    }
}

#[test]
fn a_bet_on_events_alone_is_fair_or_worse() {
    for (outcomes, share) in OUTCOMES.iter().zip([0.1, 0.5, 0.7]) {
        for (side, prior) in SIDES.into_iter().zip([Prior::MODERATE, Prior::HIGHEST]) {
            let wealth = |assigned: &[(&bool, bool)]| {
                let tables = [table(assigned, share, 0.0)].into_iter();
                log_evidence(tables, side, 0.0, prior).exp()
            };
            let average = average(outcomes, share, wealth);
            assert!(average <= 1.0 + 1e-9, "{average} {side:?} {share}");
        }
    }
}

#[test]
fn a_bet_on_a_difference_is_fair_at_the_true_difference() {
    // Live has the event in 0.2 of the requests, the canary in 0.5.
    let (share, rates) = (0.3, [0.2, 0.5]);
    for side in SIDES {
        let outcomes = OUTCOMES[0].len() as u32 / 2;
        let events = (0..1_u32 << outcomes).map(|way| {
            let requests: Vec<bool> = (0..outcomes).map(|at| way >> at & 1 == 1).collect();
            average(&requests, share, |assigned| {
                let chance = |(event, canary): &(&bool, bool)| {
                    let rate = rates[usize::from(*canary)];
                    if **event { rate } else { 1.0 - rate }
                };
                let likely = assigned.iter().map(chance).product::<f64>();
                let tables = [table(assigned, share, 0.4)].into_iter();
                likely * log_evidence(tables, side, 0.3, Prior::UNIFORM).exp()
            })
        });
        let average = events.sum::<f64>();
        assert!((average - 1.0).abs() < 1e-9, "{average} {side:?}");
    }
}

#[test]
fn a_bet_on_ranks_is_fair_or_worse() {
    let ranks = [-0.5, -0.1, 0.2, 0.5];
    for outcomes in [[0, 1, 2, 3, 3, 3, 1, 2], [3; 8], [0, 0, 0, 0, 1, 1, 3, 3]] {
        for (side, share) in SIDES.into_iter().zip([0.1, 0.6]) {
            let wealth = |assigned: &[(&usize, bool)]| {
                let mut bins = [[0; 4]; 2];
                assigned.iter().for_each(|(rank, canary)| bins[usize::from(*canary)][**rank] += 1);
                let [live, canary] = &bins;
                let stages = [Ranks { share, ranks: &ranks, live, canary }];
                rank::log_evidence(stages.into_iter(), side, 0.0).exp()
            };
            let average = average(&outcomes, share, wealth);
            assert!(average <= 1.0 + 1e-9 && average > 0.5, "{average} {side:?} {share}");
        }
    }
}

#[test]
fn a_bet_on_a_rate_is_fair_at_the_true_rate() {
    for (side, rate) in SIDES.into_iter().zip([1e-3, 0.3]) {
        // The event is here the assignment to the canary.
        let average = average(&[(); 10], rate, |assigned| {
            let events = assigned.iter().filter(|(_, event)| *event).count() as u64;
            proportion::log_evidence([(Tally { events, requests: 10 }, rate)].into_iter(), side)
                .exp()
        });
        assert!((average - 1.0).abs() < 1e-9, "{average} {side:?}");
    }
}

#[test]
fn no_wealth_exceeds_the_ceiling() {
    for (canary, live) in [(3, 0), (30, 90), (10, 90), (0, 40), (500, 500), (1, 0)] {
        let table = Table {
            share: 0.1,
            guess: 0.0,
            live: Tally { events: live, requests: 9000 },
            canary: Tally { events: canary, requests: 1000 },
        };
        for side in SIDES {
            let evidence = log_evidence([table].into_iter(), side, 0.0, Prior::MODERATE);
            let ceiling = ceiling([table].into_iter(), side);
            assert!(evidence <= ceiling + 1e-9, "{evidence} {ceiling} {canary} {live} {side:?}");
        }
    }
}

#[test]
fn the_observed_share_never_adds_evidence() {
    for (canary, null) in [(900, 0.0), (900, 0.05), (1100, 0.0), (1100, 0.05), (1100, -0.01)] {
        let table = Table {
            share: 0.1,
            guess: 0.0,
            live: Tally { events: 900, requests: 9000 },
            canary: Tally { events: canary / 4, requests: canary },
        };
        // The evidence at the drawn share alone.
        let drawn = |side| {
            let mut wealth = LogWealth::INITIAL;
            table.bet(side, null, &mut wealth);
            wealth.log_mixture(Prior::MODERATE)
        };
        for side in SIDES {
            let evidence = log_evidence([table].into_iter(), side, null, Prior::MODERATE);
            assert!(evidence <= drawn(side), "{evidence} {} {canary} {null}", drawn(side));
        }
    }
}

#[test]
fn a_sample_ratio_mismatch_is_no_difference() {
    // One user sends half of the canary's requests; the failure rates of the arms are
    // equal.
    let table = Table {
        share: 0.1,
        guess: 0.0,
        live: Tally { events: 800, requests: 80_000 },
        canary: Tally { events: 200, requests: 20_000 },
    };
    assert!(log_evidence([table].into_iter(), Side::More, 0.0, Prior::MODERATE) < 0.0);
    let drawn = Table { canary: Tally { events: 200, requests: 8888 }, ..table };
    assert!(log_evidence([drawn].into_iter(), Side::More, 0.0, Prior::MODERATE) > 10.0);
}

#[test]
fn a_bound_is_where_the_evidence_is_just_enough() {
    let found = bound(-1.0, 1.0, 2.0, |at| 3.0 - 2.0 * at);
    assert!((found - 0.5).abs() < 1e-6, "{found}");
    assert_eq!(bound(-1.0, 1.0, 9.0, |at| 3.0 - 2.0 * at), -1.0);
}
