//! The HTTP/2 windows of a connection's peer, as far as they are not those of one stream
//! ([RFC 9113](https://www.rfc-editor.org/rfc/rfc9113), sections 5.2 and 6.9).
//!
//! In calm they are large, so that no message waits for an update. When much of what the peer has
//! sent is unread, they follow the pressure: the window of the connection is not given back beyond
//! its share of the pool, and streams begin with a small one, so that the peer keeps its bodies.

use std::time::Duration;

use tokio::time::Instant;

use super::{STREAM_WINDOW, link::Demand, streams::Exceeded, unread::LEAST_SHARE};

/// The smallest window with which streams begin: a frame of most clients.
pub(super) const LEAST_STREAM: usize = 16 << 10;
/// The time without pressure after which streams begin with the largest window again. Together with
/// the step by which windows are lowered, it bounds the number of SETTINGS frames.
const CALM: Duration = Duration::from_secs(2);
/// The largest window of a connection; that of the protocol is twice as large.
const MOST: usize = 1 << 30;
/// Windows are lowered only if they become smaller by this factor.
const STEP: usize = 2;

/// The windows of a peer.
#[derive(Debug)]
pub(super) struct Windows {
    /// The bytes that the peer may send on the connection.
    allowance: usize,
    /// The window with which streams begin, as the peer may believe.
    initial: usize,
    /// The last one that was sent, until the peer has acknowledged it.
    sent: Option<usize>,
    /// True once the peer has acknowledged the first SETTINGS, which are h2's.
    is_greeted: bool,
    /// True if the connection's window was extended for messages since `sent` was.
    is_extended: bool,
    pressed_at: Option<Instant>,
}

/// The SETTINGS that a peer acknowledges.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Acknowledged {
    /// Those of h2.
    Others,
    /// Those of this layer: the windows of all streams change by this many bytes.
    Ours(i64),
}

impl Windows {
    /// The windows of a peer that streams begin with [`STREAM_WINDOW`] for.
    pub(super) fn new() -> Self {
        Self {
            allowance: LEAST_SHARE,
            initial: STREAM_WINDOW as usize,
            sent: None,
            is_greeted: false,
            is_extended: false,
            pressed_at: None,
        }
    }

    /// The window of a stream that begins now.
    pub(super) fn initial(&self) -> i64 {
        to_i64(self.initial)
    }

    /// The bytes that the peer may send on the connection.
    pub(super) fn allowance(&self) -> usize {
        self.allowance
    }

    /// True while the peer has not acknowledged the last window with which streams begin.
    pub(super) fn is_settling(&self) -> bool {
        self.sent.is_some()
    }

    /// Counts a DATA frame.
    ///
    /// # Errors
    /// It exceeds the window of the connection.
    pub(super) fn receive(&mut self, length: usize) -> Result<(), Exceeded> {
        self.allowance = self.allowance.checked_sub(length).ok_or(Exceeded)?;
        Ok(())
    }

    /// True if the peer's unread bytes are a large part of its share.
    pub(super) fn is_pressed(demand: Demand, share: usize) -> bool {
        demand.unread >= share / 2
    }

    /// The window with which streams must begin from now on, if it changes, for `open` streams; and
    /// by how much the windows of all streams change at once. A lower one holds after its
    /// acknowledgement: until then the peer may send by the one before.
    pub(super) fn adapt(
        &mut self,
        demand: Demand,
        share: usize,
        open: usize,
    ) -> Option<(usize, i64)> {
        let most = STREAM_WINDOW as usize;
        if Self::is_pressed(demand, share) {
            self.pressed_at = Some(Instant::now());
            let each = (share / open.max(1)).clamp(LEAST_STREAM, most);
            return (each <= self.initial / STEP).then(|| self.announce(each)).flatten();
        }
        let is_calm = || self.pressed_at.is_none_or(|at| at.elapsed() >= CALM);
        (self.initial < most && is_calm()).then(|| self.announce(most)).flatten()
    }

    fn announce(&mut self, initial: usize) -> Option<(usize, i64)> {
        if self.sent.is_some() {
            return None;
        }
        self.sent = Some(initial);
        self.is_extended = false;
        let shift = to_i64(initial.saturating_sub(self.initial));
        self.initial = self.initial.max(initial);
        Some((initial, shift))
    }

    /// Called when the peer has acknowledged SETTINGS.
    pub(super) fn acknowledge(&mut self) -> Acknowledged {
        if !std::mem::replace(&mut self.is_greeted, true) {
            return Acknowledged::Others;
        }
        let Some(initial) = self.sent.take() else { return Acknowledged::Others };
        let shift = to_i64(initial) - to_i64(self.initial);
        self.initial = initial;
        Acknowledged::Ours(shift)
    }

    /// The bytes by which the window of the connection must be updated now, if any; `coming` ones of
    /// the current frame are counted already, and have not arrived.
    ///
    /// The window is what the share leaves beside the unread bytes, or what handlers wait for. The
    /// peer may spend the latter on streams whose windows are still large, so it is extended once
    /// until the peer has acknowledged the lower windows of streams.
    pub(super) fn due(&mut self, demand: Demand, share: usize, coming: usize) -> Option<usize> {
        let have = self.allowance + coming;
        let own = share.saturating_sub(demand.unread);
        let extends = demand.wanted > own && !(self.is_settling() && self.is_extended);
        let wanted = if extends { demand.wanted } else { 0 };
        if have >= wanted.max(own - own / 4).min(MOST) {
            return None;
        }
        self.is_extended |= extends;
        let due = own.max(wanted + wanted / 4).min(MOST).saturating_sub(have);
        self.allowance += due;
        Some(due)
    }

    /// When less than this is unread, [`Self::due`] returns an update.
    pub(super) fn wake_below(&self, share: usize, coming: usize) -> usize {
        let have = self.allowance + coming;
        // The inverse of `have < own - own / 4`.
        share.saturating_sub(have + have / 3)
    }
}

fn to_i64(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: usize = 1 << 20;
    const CALM_DEMAND: Demand = Demand { unread: 0, wanted: 0 };
    const PRESSED: Demand = Demand { unread: SHARE, wanted: 0 };

    /// Windows whose connection has been updated to its share.
    fn windows() -> Windows {
        let mut windows = Windows::new();
        assert_eq!(windows.acknowledge(), Acknowledged::Others);
        assert_eq!(windows.due(CALM_DEMAND, SHARE, 0), Some(SHARE - LEAST_SHARE));
        windows
    }

    #[test]
    fn unread_bytes_are_not_given_back() {
        let mut windows = windows();
        windows.receive(SHARE / 2).unwrap();
        let unread = Demand { unread: SHARE / 2, wanted: 0 };
        assert_eq!(windows.due(unread, SHARE, 0), None);
        assert_eq!(windows.due(CALM_DEMAND, SHARE, SHARE / 2), None, "they are still to come");
        assert_eq!(windows.due(CALM_DEMAND, SHARE, 0), Some(SHARE / 2));
        windows.receive(SHARE).unwrap();
        assert!(windows.receive(1).is_err(), "the window is used up");
        assert!(windows.receive(0).is_ok());
    }

    #[test]
    fn an_update_is_due_exactly_when_the_connection_is_woken_for_it() {
        let mut windows = windows();
        windows.receive(SHARE / 2).unwrap();
        let below = windows.wake_below(SHARE, 0);
        assert_eq!(windows.due(Demand { unread: below, wanted: 0 }, SHARE, 0), None);
        let update = windows.due(Demand { unread: below - 1, wanted: 0 }, SHARE, 0);
        assert!(update.is_some_and(|update| update > SHARE / 8));
    }

    #[test]
    fn a_message_that_is_waited_for_gets_on_although_the_share_is_used_up() {
        let mut windows = windows();
        windows.receive(SHARE).unwrap();
        let demand = Demand { unread: 2 * SHARE, wanted: 1000 };
        assert_eq!(windows.due(demand, SHARE, 0), Some(1250));
        windows.receive(1000).unwrap();
        assert_eq!(windows.due(demand, SHARE, 0), Some(1000), "others have used it");
    }

    #[test]
    fn the_connection_is_extended_once_while_the_peer_may_not_know_the_lower_windows() {
        let mut windows = windows();
        windows.receive(SHARE).unwrap();
        assert!(windows.adapt(PRESSED, SHARE, 64).is_some());
        let demand = Demand { unread: SHARE, wanted: 1000 };
        assert!(windows.due(demand, SHARE, 0).is_some());
        windows.receive(1250).unwrap();
        assert_eq!(windows.due(demand, SHARE, 0), None);
        windows.acknowledge();
        assert!(windows.due(demand, SHARE, 0).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn streams_begin_with_less_under_pressure_and_with_all_in_calm() {
        let mut windows = windows();
        let most = STREAM_WINDOW as usize;
        assert_eq!(windows.adapt(CALM_DEMAND, SHARE, 64), None);
        assert_eq!(windows.adapt(PRESSED, SHARE, 32), Some((SHARE / 32, 0)));
        assert_eq!(windows.initial(), most as i64, "the peer may not know it yet");
        assert_eq!(windows.adapt(PRESSED, SHARE, 64), None, "one at a time");
        let shift = (SHARE / 32) as i64 - most as i64;
        assert_eq!(windows.acknowledge(), Acknowledged::Ours(shift));
        assert_eq!(windows.adapt(PRESSED, SHARE, 33), None, "not for every stream");
        assert_eq!(windows.adapt(PRESSED, SHARE, 1000), Some((LEAST_STREAM, 0)));
        windows.acknowledge();
        assert_eq!(windows.adapt(CALM_DEMAND, SHARE, 1), None, "not with every pause");
        tokio::time::advance(CALM).await;
        let all = Some((most, (most - LEAST_STREAM) as i64));
        assert_eq!(windows.adapt(CALM_DEMAND, SHARE, 1), all);
        assert_eq!(windows.initial(), most as i64, "the peer may know it already");
        assert_eq!(windows.acknowledge(), Acknowledged::Ours(0));
    }
}
