//! A queue in which several keys take turns.
//!
//! Each key has a line of waiters in order of arrival, and the keys with waiters take turns: one
//! waiter of each, and then the next of each (round robin; Nagle, "On Packet Switches With Infinite
//! Storage", RFC 970). A key with thousands of waiters thus delays one with few by one waiter a
//! turn. A key that may have nothing at the moment, because it is at a limit of its own, is passed
//! over until it is resumed.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// Added to the turns of keys that were not advanced.
const LATER: u64 = 1 << 63;

/// Waiters by key, whose keys take turns. Nothing is stored for a key without waiters.
#[derive(Debug)]
pub struct Turns<K, T> {
    lines: HashMap<K, Line<T>>,
    /// The keys that take turns, the next first.
    ring: BTreeMap<u64, K>,
    /// The number of the latest turn and of the latest waiter.
    latest: u64,
    /// At index N, the number of keys that have more than N waiters.
    longer: Vec<usize>,
    count: usize,
}

/// The waiters of one key.
#[derive(Debug)]
struct Line<T> {
    waiters: BTreeMap<i64, T>,
    /// The number of its turn; `None` if it is passed over.
    turn: Option<u64>,
}

/// The place of a waiter in its key's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(i64);

impl<K, T> Default for Turns<K, T> {
    fn default() -> Self {
        let (lines, ring, longer) = (HashMap::new(), BTreeMap::new(), Vec::new());
        Self { lines, ring, latest: 0, longer, count: 0 }
    }
}

impl<K: Eq + Hash + Clone, T> Turns<K, T> {
    /// The number of waiters.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if nobody waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of waiters that would come before a further one of `key`: those of its own line,
    /// and of every other as many as get a turn until then. The cost grows with the length of the
    /// key's line.
    pub fn ahead(&self, key: &K) -> usize {
        let own = self.lines.get(key).map_or(0, |line| line.waiters.len());
        self.longer.iter().take(own + 1).sum()
    }

    /// Adds a waiter at the end of its key's line.
    pub fn push(&mut self, key: K, waiter: T) -> Ticket {
        self.latest += 1;
        #[allow(clippy::cast_possible_wrap)]
        let ticket = Ticket(self.latest as i64);
        self.insert(key, ticket, waiter)
    }

    /// Adds a waiter before those of its key that were not added so themselves.
    pub fn push_first(&mut self, key: K, waiter: T) -> Ticket {
        self.latest += 1;
        let ticket = Ticket(i64::MIN.saturating_add_unsigned(self.latest));
        self.insert(key, ticket, waiter)
    }

    /// Gives a key its turn before all keys that this was not called for since their last turn.
    pub fn advance(&mut self, key: &K) {
        if let Some(line) = self.lines.get_mut(key)
            && let Some(turn) = line.turn.filter(|turn| *turn >= LATER)
        {
            self.ring.remove(&turn);
            self.latest += 1;
            line.turn = Some(self.latest);
            self.ring.insert(self.latest, key.clone());
        }
    }

    fn insert(&mut self, key: K, ticket: Ticket, waiter: T) -> Ticket {
        let line = self.lines.entry(key.clone()).or_insert_with(|| {
            self.latest += 1;
            let turn = LATER + self.latest;
            self.ring.insert(turn, key);
            Line { waiters: BTreeMap::new(), turn: Some(turn) }
        });
        let before = line.waiters.len();
        if self.longer.len() == before {
            self.longer.push(0);
        }
        self.longer[before] += 1;
        self.count += 1;
        line.waiters.insert(ticket.0, waiter);
        ticket
    }

    /// The waiter whose turn it is, with its key.
    pub fn next(&self) -> Option<(&K, &T)> {
        let (_, key) = self.ring.first_key_value()?;
        let (_, waiter) = self.lines.get(key)?.waiters.first_key_value()?;
        Some((key, waiter))
    }

    /// Takes the waiter whose turn it is, and gives the next key its turn.
    pub fn pop(&mut self) -> Option<(K, T)> {
        let (_, key) = self.ring.pop_first()?;
        self.latest += 1;
        let line = self.lines.get_mut(&key)?;
        line.turn = Some(LATER + self.latest);
        self.ring.insert(LATER + self.latest, key.clone());
        let ticket = Ticket(*line.waiters.first_key_value()?.0);
        let waiter = self.remove(&key, ticket)?;
        Some((key, waiter))
    }

    /// Passes over the key whose turn it is, until it is resumed. It stays passed over while it has
    /// waiters.
    pub fn pass_over(&mut self) {
        if let Some((_, key)) = self.ring.pop_first()
            && let Some(line) = self.lines.get_mut(&key)
        {
            line.turn = None;
        }
    }

    /// Gives a key that was passed over its turn again, after the others.
    pub fn resume(&mut self, key: &K) {
        if let Some(line) = self.lines.get_mut(key).filter(|line| line.turn.is_none()) {
            self.latest += 1;
            line.turn = Some(LATER + self.latest);
            self.ring.insert(LATER + self.latest, key.clone());
        }
    }

    /// Gives every key that was passed over its turn again.
    pub fn resume_all(&mut self) {
        let over = self.lines.iter().filter(|(_, line)| line.turn.is_none());
        let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
        over.iter().for_each(|key| self.resume(key));
    }

    /// Removes a waiter, which has gone away; `None` if it is not there any more.
    pub fn remove(&mut self, key: &K, ticket: Ticket) -> Option<T> {
        let line = self.lines.get_mut(key)?;
        let waiter = line.waiters.remove(&ticket.0)?;
        let left = line.waiters.len();
        self.longer[left] -= 1;
        while self.longer.last() == Some(&0) {
            self.longer.pop();
        }
        self.count -= 1;
        if left == 0
            && let Some(Line { turn: Some(turn), .. }) = self.lines.remove(key)
        {
            self.ring.remove(&turn);
        }
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(turns: &mut Turns<char, u32>) -> String {
        std::iter::from_fn(|| turns.pop()).map(|(key, waiter)| format!("{key}{waiter} ")).collect()
    }

    fn of(waiters: &[(char, u32)]) -> (Turns<char, u32>, Vec<Ticket>) {
        let mut turns = Turns::default();
        let tickets = waiters.iter().map(|(key, waiter)| turns.push(*key, *waiter)).collect();
        (turns, tickets)
    }

    const MIXED: [(char, u32); 6] = [('a', 1), ('a', 2), ('a', 3), ('b', 1), ('c', 1), ('c', 2)];

    /// Nothing is left of keys that had waiters.
    fn assert_forgotten(turns: &Turns<char, u32>) {
        assert!(turns.is_empty() && turns.lines.is_empty() && turns.ring.is_empty());
        assert!(turns.longer.is_empty(), "{:?}", turns.longer);
    }

    #[test]
    fn keys_take_turns_and_each_has_its_order_of_arrival() {
        let (mut turns, _) = of(&MIXED);
        assert_eq!((turns.len(), turns.next()), (6, Some((&'a', &1))));
        assert_eq!(drained(&mut turns), "a1 b1 c1 a2 c2 a3 ");
        assert_forgotten(&turns);
    }

    #[test]
    fn a_new_key_waits_for_one_turn_of_the_others() {
        let (mut turns, _) = of(&MIXED);
        assert_eq!(turns.pop(), Some(('a', 1)));
        turns.push('d', 1);
        assert_eq!(drained(&mut turns), "b1 c1 a2 d1 c2 a3 ");
    }

    #[test]
    fn those_ahead_are_those_that_get_a_turn_before() {
        let (mut turns, _) = of(&MIXED);
        for (key, expected) in [('d', 3), ('b', 3 + 2), ('c', 3 + 2 + 1), ('a', 6)] {
            assert_eq!(turns.ahead(&key), expected, "{key}");
        }
        turns.pop();
        // The second of a, which is the first now, and those of b and c.
        assert_eq!(turns.ahead(&'d'), 3);
        assert_eq!(turns.ahead(&'b'), 3 + 2);
        drained(&mut turns);
        assert_eq!(turns.ahead(&'a'), 0);
    }

    #[test]
    fn waiters_that_go_away_leave_nothing() {
        let (mut turns, tickets) = of(&MIXED);
        assert_eq!(turns.remove(&'a', tickets[1]), Some(2));
        assert_eq!(turns.remove(&'a', tickets[1]), None, "it has gone already");
        assert_eq!(turns.remove(&'b', tickets[3]), Some(1));
        assert_eq!(drained(&mut turns), "a1 c1 a3 c2 ");
        assert_eq!(turns.remove(&'c', tickets[4]), None, "its turn has come");
        assert_forgotten(&turns);
    }

    #[test]
    fn one_that_comes_back_is_the_first_of_its_key() {
        let (mut turns, _) = of(&MIXED);
        turns.push_first('c', 7);
        turns.push_first('c', 8);
        turns.push_first('d', 9);
        assert_eq!(drained(&mut turns), "a1 b1 c7 d9 a2 c8 a3 c1 c2 ");
        assert_forgotten(&turns);
    }

    #[test]
    fn a_key_that_is_advanced_comes_before_the_others_once() {
        let (mut turns, _) = of(&MIXED);
        turns.advance(&'c');
        turns.advance(&'b');
        turns.advance(&'d');
        assert_eq!(drained(&mut turns), "c1 b1 a1 c2 a2 a3 ");
        assert_forgotten(&turns);
    }

    #[test]
    fn a_key_that_is_passed_over_comes_after_the_others_when_it_is_resumed() {
        let (mut turns, _) = of(&MIXED);
        turns.pass_over();
        turns.push('a', 4);
        assert_eq!(turns.pop(), Some(('b', 1)));
        turns.resume(&'a');
        turns.resume_all();
        assert_eq!(drained(&mut turns), "c1 a1 c2 a2 a3 a4 ");
        assert_forgotten(&turns);
    }

    #[test]
    fn a_key_that_is_passed_over_is_forgotten_with_its_last_waiter() {
        let (mut turns, tickets) = of(&MIXED[..2]);
        turns.pass_over();
        assert_eq!(turns.next(), None);
        assert_eq!(turns.pop(), None);
        assert!(tickets.into_iter().all(|ticket| turns.remove(&'a', ticket).is_some()));
        turns.resume(&'a');
        assert_forgotten(&turns);
        turns.push('a', 5);
        assert_eq!(turns.pop(), Some(('a', 5)), "it is a new key");
    }
}
