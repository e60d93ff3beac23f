//! A message that is put together in one buffer from the pieces in which it arrives.

use bytes::{Buf as _, BufMut as _, BytesMut};

use super::{Bounds, PREFIX, Payload, Unreadable};

/// A message's declared length counts for at most this many times the bytes that have arrived. So a
/// sender cannot have memory set aside with a length alone, and growing the buffer copies less than
/// a fiftieth of the message.
const TRUST: usize = 64;
/// The least number of bytes that are trusted to have arrived.
const LEAST: usize = 1 << 10;

/// A message with its prefix, in one buffer that has the message's length as soon as a part of it
/// has arrived.
#[derive(Debug, Default)]
pub struct Assembly {
    bytes: BytesMut,
}

impl Assembly {
    /// The bytes that have arrived, with the prefix.
    pub fn arrived(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes that are set aside.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// The bytes that can arrive before the buffer must grow.
    pub fn room(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }

    /// The length with the prefix, once that has arrived.
    pub fn whole(&self) -> Option<usize> {
        let (prefix, _) = self.bytes.split_first_chunk::<PREFIX>()?;
        Some(whole(prefix))
    }

    /// True if every byte of the message has arrived.
    pub fn is_whole(&self) -> bool {
        self.whole() == Some(self.bytes.len())
    }

    /// Checks what has arrived.
    ///
    /// # Errors
    /// The message is not within `bounds`, or is followed by more data.
    pub fn check(&self, bounds: Bounds) -> Result<(), Unreadable> {
        self.admits(&[], bounds)
    }

    /// Checks what has arrived together with `more`, which has arrived next.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn admits(&self, more: &[u8], bounds: Bounds) -> Result<(), Unreadable> {
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
    pub fn needs(&self, more: &[u8]) -> usize {
        let arrived = self.bytes.len() + more.len();
        match self.declared(more) {
            Some(whole) if arrived <= whole => step(whole, arrived),
            _ => arrived.max(2 * self.bytes.len()),
        }
    }

    /// The length with the prefix, if it is known when `more` has arrived.
    fn declared(&self, more: &[u8]) -> Option<usize> {
        if self.bytes.len() >= PREFIX {
            return self.whole();
        }
        let mut prefix = [0; PREFIX];
        let mut both = self.arrived().chain(more);
        if both.remaining() < PREFIX {
            return None;
        }
        both.copy_to_slice(&mut prefix);
        Some(whole(&prefix))
    }

    /// Gives the buffer this capacity if it has less. Returns the number of bytes that were moved.
    pub fn set_aside(&mut self, capacity: usize) -> usize {
        if capacity <= self.bytes.capacity() {
            return 0;
        }
        let mut larger = BytesMut::with_capacity(capacity);
        larger.put_slice(&self.bytes);
        self.bytes = larger;
        self.bytes.len()
    }

    /// Frees what is set aside beyond the bytes that have arrived, if it is more than they are.
    /// Returns the number of bytes that were moved.
    pub fn trim(&mut self) -> usize {
        if self.room() <= self.bytes.len() {
            return 0;
        }
        self.bytes = BytesMut::from(&self.bytes[..]);
        self.bytes.len()
    }

    /// Appends what has arrived.
    pub fn push(&mut self, more: &[u8]) {
        self.bytes.put_slice(more);
    }

    /// The buffer, for reads that append to it within its capacity.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// The message without its prefix.
    ///
    /// # Errors
    /// [`Unreadable::Cut`] if it is incomplete.
    pub fn finish(self) -> Result<Payload, Unreadable> {
        if !self.is_whole() {
            return Err(Unreadable::Cut);
        }
        Ok(Payload::of(self.bytes.freeze()))
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
    use bytes::Bytes;

    use super::*;
    use crate::raw::unary::{Compressed, framed};

    /// Puts a message together from pieces, as a connection does; returns it with the bytes that
    /// were moved when the buffer grew.
    fn assembled(message: &[u8], piece: usize) -> (Bytes, usize) {
        let (mut assembly, mut moved) = (Assembly::default(), 0);
        for piece in framed(message).chunks(piece) {
            moved += assembly.set_aside(assembly.needs(piece));
            assembly.push(piece);
            assembly.check(Bounds::plain(message.len())).unwrap();
        }
        (assembly.finish().unwrap().bytes, moved)
    }

    #[test]
    fn a_message_moves_little_while_it_grows_whatever_the_pieces() {
        for length in [0, 1, 5, 1000, 70_000, 95_000, 700_000, 4 << 20] {
            let message: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            for piece in [1, 7, 16 << 10, 1 << 20] {
                let (whole, moved) = assembled(&message, piece);
                assert_eq!(whole, message);
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
            assembly.set_aside(assembly.needs(more));
            assembly.push(more);
            let capacity = assembly.capacity();
            assert!(capacity <= TRUST * arrived.max(LEAST), "{capacity} of {arrived}");
        }
    }

    #[test]
    fn what_is_set_aside_for_a_message_that_stays_away_is_freed() {
        let message = framed(&vec![1; 95_000]);
        let mut assembly = Assembly::default();
        assembly.set_aside(assembly.needs(&message[..16 << 10]));
        assembly.push(&message[..16 << 10]);
        assert_eq!((assembly.trim(), assembly.capacity()), (16 << 10, 16 << 10));
        assert_eq!(assembly.trim(), 0);
        assembly.set_aside(assembly.needs(&message[16 << 10..]));
        assembly.push(&message[16 << 10..]);
        assert_eq!(assembly.finish().unwrap().bytes, vec![1; 95_000]);
    }

    #[test]
    fn the_buffer_has_exactly_the_length_of_the_message() {
        let message = vec![1; 95_000];
        let first = &framed(&message)[..16 << 10];
        let mut assembly = Assembly::default();
        assembly.set_aside(assembly.needs(first));
        assembly.push(first);
        assert_eq!(assembly.capacity(), PREFIX + message.len());
        assert_eq!(assembly.room(), PREFIX + message.len() - first.len());
    }

    #[test]
    fn incomplete_surplus_compressed_and_large_messages_are_refused() {
        let of = |bytes: &[u8]| {
            let mut assembly = Assembly::default();
            assembly.set_aside(bytes.len());
            assembly.push(bytes);
            assembly
        };
        let error = |bytes: &[u8]| of(bytes).check(Bounds::plain(4)).unwrap_err();
        assert!(matches!(error(b"\x01"), Unreadable::Unsupported));
        assert!(matches!(error(b"\0\0\0\0\x05"), Unreadable::TooLarge { size: 5, limit: 4 }));
        assert!(matches!(error(b"\0\0\0\0\x01ab"), Unreadable::Surplus));
        for cut in [&b""[..], b"\0\0\0", b"\0\0\0\0\x04abc"] {
            of(cut).check(Bounds::plain(4)).unwrap();
            assert!(matches!(of(cut).finish(), Err(Unreadable::Cut)));
        }
    }
    #[test]
    fn a_compressed_message_is_read_if_it_is_accepted() {
        let mut assembly = Assembly::default();
        let bounds = Bounds { size: 4, compressed: Compressed::Accepted };
        for piece in [&b"\x01\0"[..], b"\0\0\x02a", b"b"] {
            assembly.admits(piece, bounds).unwrap();
            assembly.set_aside(assembly.needs(piece));
            assembly.push(piece);
        }
        let payload = assembly.finish().unwrap();
        assert_eq!((&payload.bytes[..], payload.is_compressed), (&b"ab"[..], true));
    }
}
