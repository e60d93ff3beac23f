//! A message that is put together in one buffer from the pieces in which it arrives.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::{Bounds, PREFIX, Unreadable};

/// A message's declared length counts for at most this many times the bytes that have arrived. So a
/// sender cannot have memory set aside with a length alone, and growing the buffer copies less than
/// a fiftieth of the message.
const TRUST: usize = 64;
/// The least number of bytes that are trusted to have arrived.
const LEAST: usize = 1 << 10;

/// A message with its prefix, in one buffer that has the message's length as soon as a part of it
/// has arrived.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    bytes: BytesMut,
}

impl Assembly {
    /// The bytes that have arrived, with the prefix.
    pub(super) fn arrived(&self) -> &[u8] {
        &self.bytes
    }

    /// Checks what has arrived together with `more`, which has arrived next.
    ///
    /// # Errors
    /// The message is not within `bounds`, or is followed by more data.
    pub(super) fn admits(&self, more: &[u8], bounds: Bounds) -> Result<(), Unreadable> {
        if let Some(flag) = self.bytes.first().or(more.first()) {
            bounds.check_flag(*flag)?;
        }
        let Some(whole) = self.declared(more) else { return Ok(()) };
        bounds.check_size(whole - PREFIX)?;
        match self.bytes.len() + more.len() > whole {
            true => Err(Unreadable::Surplus),
            false => Ok(()),
        }
    }

    /// The capacity to set aside for `more`, which has arrived next: that of the message, or a part
    /// of it if too little has arrived to trust its declared length.
    fn needs(&self, more: &[u8]) -> usize {
        let arrived = self.bytes.len() + more.len();
        match self.declared(more) {
            Some(whole) if arrived <= whole => step(whole, arrived),
            _ => arrived.max(2 * self.bytes.len()),
        }
    }

    /// The length with the prefix, if it is known when `more` has arrived.
    pub(super) fn declared(&self, more: &[u8]) -> Option<usize> {
        let mut prefix = [0; PREFIX];
        let mut both = self.arrived().chain(more);
        if both.remaining() < PREFIX {
            return None;
        }
        both.copy_to_slice(&mut prefix);
        Some(whole(&prefix))
    }

    /// Appends `more`, which has arrived next. If the buffer must grow, `admit` is called with its new
    /// capacity first.
    ///
    /// # Errors
    /// [`Unreadable::NotAdmitted`] if `admit` returns false.
    pub(super) fn append(
        &mut self,
        more: &[u8],
        admit: &mut impl FnMut(usize) -> bool,
    ) -> Result<(), Unreadable> {
        if self.bytes.capacity() - self.bytes.len() < more.len() {
            let capacity = self.needs(more);
            if !admit(capacity) {
                return Err(Unreadable::NotAdmitted);
            }
            let mut larger = BytesMut::with_capacity(capacity);
            larger.put_slice(&self.bytes);
            self.bytes = larger;
        }
        self.bytes.put_slice(more);
        Ok(())
    }

    /// Returns the bytes that have arrived.
    pub(super) fn freeze(self) -> Bytes {
        self.bytes.freeze()
    }
}

fn whole([_, a, b, c, d]: &[u8; PREFIX]) -> usize {
    u32::from_be_bytes([*a, *b, *c, *d]) as usize + PREFIX
}

/// The buffer for the first `arrived` bytes of a message: the smallest of its length, a 64th of
/// that, a 64th of that and so on which holds them.
fn step(whole: usize, arrived: usize) -> usize {
    let mut step = whole;
    while step / TRUST >= arrived.max(LEAST) {
        step /= TRUST;
    }
    step
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::raw::unary::framed;

    /// Puts a message together from pieces; returns it with the capacities that its buffer had.
    fn assembled(message: &[u8], piece: usize) -> (Bytes, Vec<usize>) {
        let mut assembly = Assembly::default();
        let mut capacities = Vec::new();
        for piece in framed(message).chunks(piece) {
            assembly.admits(piece, Bounds::plain(message.len())).unwrap();
            let mut admit = |capacity| {
                capacities.push(capacity);
                true
            };
            assembly.append(piece, &mut admit).unwrap();
        }
        (assembly.freeze().slice(PREFIX..), capacities)
    }

    #[test]
    fn a_message_moves_little_while_it_grows_whatever_the_pieces() {
        for length in [0, 1, 5, 1000, 70_000, 95_000, 700_000, 4 << 20] {
            let message: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            for piece in [1, 7, 16 << 10, 1 << 20] {
                let (whole, capacities) = assembled(&message, piece);
                assert_eq!(whole, message);
                let (last, before) = capacities.split_last().unwrap();
                assert_eq!(*last, PREFIX + length, "the buffer has the length of the message");
                let moved: usize = before.iter().sum();
                assert!(
                    moved <= 2 * PREFIX + length / 50,
                    "{moved} of {length}, {piece} at a time"
                );
            }
        }
    }

    #[test]
    fn a_declared_length_alone_sets_little_aside() {
        let mut sent = vec![0; 200 << 10];
        sent[1..PREFIX].fill(0xff);
        let mut assembly = Assembly::default();
        for arrived in [PREFIX, 100, 1 << 10, 100 << 10] {
            let more = &sent[assembly.arrived().len()..arrived];
            assembly.append(more, &mut |_| true).unwrap();
            let capacity = assembly.bytes.capacity();
            assert!(capacity <= TRUST * arrived.max(LEAST), "{capacity} of {arrived}");
        }
    }
}
