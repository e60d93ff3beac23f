use std::thread;

use futures::{FutureExt as _, future::join_all};

use super::*;

const REFUSALS: Refusals = Refusals { busy: Reason::Overloaded, too_large: Reason::TooLarge };

fn account(limit: u64) -> Account {
    Account::new("test", limit, REFUSALS)
}

fn version() -> Digest {
    Digest::of(b"a version")
}

/// Owners with counters of their own.
fn owners() -> impl Iterator<Item = Owner> {
    (0..SLOTS).map(Owner)
}

#[test]
fn one_owner_leaves_half_of_the_account_to_all_others() {
    let account = account(1000);
    let mut owners = owners();
    let (hog, other) = (owners.next().unwrap(), owners.next().unwrap());
    let held = account.charge(hog, 500).expect("half of it");
    let refused = held.grow(1).unwrap_err();
    assert_eq!(refused.reason, Reason::TooLarge, "not even in an empty account");
    assert_eq!(account.charge(hog, 1).unwrap_err().reason, Reason::Overloaded);
    let mine = account.charge(other, 250).expect("half of the rest");
    assert_eq!(account.charge(other, 1).unwrap_err().reason, Reason::Overloaded);
    drop(held);
    mine.grow(250).expect("all is free but its own");
    drop(mine);
    assert_eq!(account.used(), 0);
}

#[test]
fn an_owner_that_holds_nothing_finds_room_beside_many_hogs() {
    let account = account(1 << 20);
    let mut owners = owners();
    let hogs: Vec<_> = owners.by_ref().take(15).collect();
    let mut held = Vec::new();
    for hog in hogs.iter().cycle().take(15 << 10) {
        held.extend(account.charge(*hog, 1 << 10));
    }
    assert!(account.used() >= account.limit() / 20 * 18, "the hogs do use the account");
    account.charge(owners.next().unwrap(), 1 << 10).expect("hogs that compete never take the last");
}

#[test]
fn a_charge_shrinks_by_at_most_what_it_holds() {
    let account = account(100);
    let charge = account.charge(Owner(0), 30).unwrap();
    charge.shrink(10);
    assert_eq!((charge.bytes(), account.used()), (20, 20));
    charge.shrink(50);
    assert_eq!((charge.bytes(), account.used()), (0, 0));
    drop(charge);
    assert_eq!(account.used(), 0);
}

#[test]
fn a_refusal_says_what_is_full() {
    let account = account(1 << 20);
    let huge = account.charge(Owner(0), 2 << 20).unwrap_err();
    assert_eq!(huge.reason, Reason::TooLarge);
    assert!(huge.message.contains("test") && huge.message.contains("1.0 MiB"), "{}", huge.message);
    let _held = account.charge(Owner(0), 400 << 10).unwrap();
    let busy = account.charge(Owner(0), 400 << 10).unwrap_err();
    assert_eq!(busy.reason, Reason::Overloaded);
    assert!(busy.message.contains("400.0 KiB"), "{}", busy.message);
}

#[test]
fn threads_never_exceed_the_limit_and_leave_nothing_behind() {
    let account = account(1000);
    thread::scope(|scope| {
        for owner in owners().take(4) {
            let account = &account;
            scope.spawn(move || {
                for size in (1..=400).cycle().take(20_000) {
                    let Ok(charge) = account.charge(owner, size) else { continue };
                    assert!(charge.bytes() <= 500);
                    if charge.grow(size / 2).is_ok() {
                        charge.shrink(size);
                    }
                }
            });
        }
    });
    assert_eq!(account.used(), 0);
    let left = account.0.owners.iter().map(|slot| slot.load(Relaxed)).sum::<u64>();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn those_who_wait_get_room_in_the_order_in_which_they_asked() {
    let account = account(100);
    let held = account.wait(version(), 60).await.unwrap();
    let mut large = Box::pin(account.wait(version(), 80));
    let mut small = Box::pin(account.wait(version(), 10));
    assert!(futures::poll!(large.as_mut()).is_pending());
    assert!(futures::poll!(small.as_mut()).is_pending(), "it fits, but is not first");
    drop(held);
    let large = large.await.unwrap();
    let small = small.await.unwrap();
    assert_eq!(account.used(), 90);
    drop((large, small));
}

#[tokio::test]
async fn one_who_stops_waiting_leaves_its_turn_to_the_next() {
    let account = account(100);
    let held = account.wait(version(), 60).await.unwrap();
    let mut large = Box::pin(account.wait(version(), 80));
    assert!(futures::poll!(large.as_mut()).is_pending());
    let mut small = Box::pin(account.wait(version(), 40));
    assert!(futures::poll!(small.as_mut()).is_pending());
    drop(large);
    assert_eq!(small.await.unwrap().bytes() + held.bytes(), 100);
}

#[tokio::test]
async fn a_version_is_listed_while_it_waits() {
    let account = account(100);
    let held = account.wait(version(), 60).await.unwrap();
    assert!(!account.is_awaited_by(&version()), "it has its room");
    let mut first = Box::pin(account.wait(version(), 80));
    let mut second = Box::pin(account.wait(version(), 10));
    for waiting in [&mut first, &mut second] {
        assert!(futures::poll!(waiting.as_mut()).is_pending());
    }
    assert!(account.is_awaited_by(&version()));
    assert!(!account.is_awaited_by(&Digest::of(b"another version")));
    drop(first);
    assert!(account.is_awaited_by(&version()), "it waits once more");
    drop(second);
    assert!(!account.is_awaited_by(&version()), "it does not wait any more");
    drop(held);
}

#[tokio::test]
async fn more_than_the_account_has_is_refused_without_waiting() {
    let account = account(100);
    let refused = account.wait(version(), 101).now_or_never().expect("no wait").unwrap_err();
    assert_eq!((refused.reason, refused.account), (Reason::TooLarge, Some("test")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_release_is_missed() {
    let account = account(10);
    let turns = (0..1000_u64).map(|turn| {
        let account = account.clone();
        tokio::spawn(async move { drop(account.wait(version(), 1 + turn % 10).await.unwrap()) })
    });
    for turn in join_all(turns).await {
        turn.unwrap();
    }
    assert_eq!(account.used(), 0);
}

#[test]
fn a_reservation_that_does_not_fit_names_the_lack() {
    let account = Account::new("test", 100, REFUSALS);
    let (one, other) = (Owner(1), Owner(2));
    let held = account.reserve(one, 50).expect("half of it");
    assert_eq!(account.reserve(one, 1).unwrap_err(), Lack::Share);
    assert_eq!(account.reserve(other, 51).unwrap_err(), Lack::Account);
    drop(held);
    assert_eq!(account.used(), 0);
    account.reserve(other, 50).expect("there is room again");
}

#[test]
fn what_is_passed_to_another_charge_stays_charged() {
    let account = Account::new("test", 100, REFUSALS);
    let (reserved, body) = (account.reserve(Owner(1), 30).unwrap(), account.open(Owner(1)));
    assert_eq!((reserved.pass(&body, 20), reserved.pass(&body, 20)), (20, 10));
    assert_eq!((reserved.bytes(), body.bytes(), account.used()), (0, 30, 30));
    drop(reserved);
    assert_eq!(account.used(), 30);
    drop(body);
    assert_eq!(account.used(), 0);
}
