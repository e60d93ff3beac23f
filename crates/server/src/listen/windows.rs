//! The windows of the peer of a connection
//! ([RFC 9113](https://www.rfc-editor.org/rfc/rfc9113), sections 5.2 and 6.9), which h2 keeps.
//!
//! In calm they are large, so that no message waits for an update. When much of what the peer has
//! sent is unread, they follow the pressure: h2 does not give back the bytes of bodies that nobody has
//! taken charge of, and streams begin with a small window, so that the peer keeps its bodies.

use std::time::Duration;

use tokio::time::Instant;

use super::{CONNECTION_WINDOW, STREAM_WINDOW, bodies::Demand};

/// The smallest window with which streams begin: a frame of most clients.
pub(super) const LEAST_STREAM: usize = 16 << 10;
/// The time without pressure after which streams begin with the largest window again. Together with
/// the step by which windows are lowered, it bounds the number of SETTINGS frames.
const CALM: Duration = Duration::from_secs(2);
/// The largest window of a connection; that of the protocol is twice as large.
const MOST: usize = 1 << 30;
/// Windows are lowered only if they become smaller by this factor.
const STEP: usize = 2;

/// The windows that a peer should have.
#[derive(Debug)]
pub(super) struct Windows {
    /// That of the connection, the bytes in h2's buffers included.
    connection: usize,
    /// That with which streams begin, as it was last announced.
    stream: usize,
    /// True if the connection's window was extended for readers since `stream` was announced.
    is_extended: bool,
    pressed_at: Option<Instant>,
}

impl Windows {
    /// The windows of a new connection with this share of the pool.
    pub(super) fn new(share: usize) -> Self {
        Self {
            connection: share.min(CONNECTION_WINDOW as usize),
            stream: STREAM_WINDOW as usize,
            is_extended: false,
            pressed_at: None,
        }
    }

    /// That of the connection, in bytes.
    pub(super) fn connection(&self) -> u32 {
        to_u32(self.connection)
    }

    /// Returns the window with which streams must begin from now on, if it changes. The one before
    /// holds until the peer has acknowledged it; `is_settled` is true if it has.
    pub(super) fn streams(&mut self, demand: Demand, is_settled: bool) -> Option<u32> {
        let most = STREAM_WINDOW as usize;
        let next = if demand.is_pressed() {
            self.pressed_at = Some(Instant::now());
            let each = (demand.share / demand.waiting.max(1)).clamp(LEAST_STREAM, most);
            (each <= self.stream / STEP).then_some(each)
        } else {
            let is_calm = || self.pressed_at.is_none_or(|at| at.elapsed() >= CALM);
            (self.stream < most && is_calm()).then_some(most)
        };
        let next = next.filter(|_| is_settled)?;
        self.stream = next;
        self.is_extended = false;
        Some(to_u32(next))
    }

    /// Returns the window of the connection, if it changes. It is the share, and at least
    /// [`LEAST_STREAM`] for each reader beside the bytes that nobody has taken charge of. The peer may
    /// spend the latter on streams whose windows are still large, so it is extended once until the
    /// peer has acknowledged the lower windows of streams.
    pub(super) fn connections(&mut self, demand: Demand, is_settled: bool) -> Option<u32> {
        let share = demand.share.min(CONNECTION_WINDOW as usize);
        let wanted = (demand.unread + demand.readers * LEAST_STREAM).min(MOST);
        let next = match demand.readers > 0 && wanted > share {
            true if is_settled || !self.is_extended => {
                self.is_extended = true;
                wanted
            }
            true => return None,
            false => share,
        };
        (std::mem::replace(&mut self.connection, next) != next).then(|| to_u32(next))
    }
}

/// A window has less than 2^31 bytes.
fn to_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: usize = 1 << 20;
    const CALM_DEMAND: Demand =
        Demand { unread: 0, waiting: 0, readers: 0, share: SHARE, is_partial: false };
    const PRESSED: Demand = Demand { unread: SHARE, waiting: 64, ..CALM_DEMAND };

    fn window(bytes: usize) -> Option<u32> {
        Some(u32::try_from(bytes).unwrap())
    }

    #[test]
    fn a_connection_has_its_share() {
        let mut windows = Windows::new(SHARE);
        assert_eq!(windows.connection() as usize, SHARE);
        assert_eq!(windows.connections(CALM_DEMAND, true), None);
        let more = Demand { share: 1 << 40, ..CALM_DEMAND };
        assert_eq!(windows.connections(more, true), Some(CONNECTION_WINDOW));
        assert_eq!(windows.connections(PRESSED, true), window(SHARE), "nobody reads");
    }

    #[test]
    fn readers_get_on_although_the_share_is_used_up() {
        let mut windows = Windows::new(SHARE);
        let demand = Demand { readers: 2, ..PRESSED };
        assert_eq!(windows.connections(demand, true), window(SHARE + 2 * LEAST_STREAM));
        let spent = Demand { unread: 2 * SHARE, ..demand };
        let more = window(2 * SHARE + 2 * LEAST_STREAM);
        assert_eq!(windows.connections(spent, true), more, "others have used it");
    }

    #[test]
    fn the_connection_is_extended_once_while_the_peer_may_not_know_the_lower_windows() {
        let mut windows = Windows::new(SHARE);
        assert!(windows.streams(PRESSED, true).is_some());
        let demand = Demand { readers: 1, ..PRESSED };
        assert!(windows.connections(demand, false).is_some());
        let spent = Demand { unread: SHARE + LEAST_STREAM, ..demand };
        assert_eq!(windows.connections(spent, false), None);
        assert!(windows.connections(spent, true).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn streams_begin_with_less_under_pressure_and_with_all_in_calm() {
        let mut windows = Windows::new(SHARE);
        assert_eq!(windows.streams(CALM_DEMAND, true), None);
        let few = Demand { waiting: 32, ..PRESSED };
        assert_eq!(windows.streams(few, true), window(SHARE / 32));
        assert_eq!(windows.streams(Demand { waiting: 1000, ..few }, false), None, "one at a time");
        assert_eq!(
            windows.streams(Demand { waiting: 33, ..few }, true),
            None,
            "not for each stream"
        );
        let many = Demand { waiting: 1000, ..few };
        assert_eq!(windows.streams(many, true), window(LEAST_STREAM));
        assert_eq!(windows.streams(CALM_DEMAND, true), None, "not with every pause");
        tokio::time::advance(CALM).await;
        assert_eq!(windows.streams(CALM_DEMAND, true), Some(STREAM_WINDOW));
    }
}
