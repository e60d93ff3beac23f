//! The frames that h2 sends, as far as the layer below it must know them.

use std::io::IoSlice;

use super::frames::{Begun, HEADER, Head};

const RST_STREAM: u8 = 3;
pub(super) const WINDOW_UPDATE: u8 = 8;

/// The position in what h2 sends.
#[derive(Default)]
pub(super) struct Writer {
    head: Begun,
    /// The bytes of the frame's payload that are left.
    left: usize,
    has_begun: bool,
}

/// The next bytes of h2.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This number of them is sent.
    Send(usize),
    /// This number of them is not sent: they are an update of a window, and all windows are kept below h2.
    Drop(usize),
}

impl Writer {
    /// True if frames may be sent here that are not h2's: no frame of h2 has been sent in part, and
    /// its SETTINGS, which come first, have been.
    pub(super) fn is_between_frames(&self) -> bool {
        self.has_begun && self.is_at_frame()
    }

    fn is_at_frame(&self) -> bool {
        self.left == 0 && self.head.is_empty()
    }

    /// The next bytes of `pieces`. h2 gives the header of a frame in one piece, together with the
    /// payload of an update.
    pub(super) fn next(&self, pieces: &[IoSlice<'_>]) -> Next {
        let all = pieces.iter().map(|piece| piece.len()).sum();
        if !self.head.is_empty() {
            return Next::Send(self.head.missing().min(all));
        }
        let mut at = self.left;
        while let Some(head) = head_at(pieces, at) {
            let end = at + HEADER + head.length;
            if head.kind == WINDOW_UPDATE && end <= all {
                return if at == 0 { Next::Drop(end) } else { Next::Send(at) };
            }
            at = end;
        }
        Next::Send(all)
    }

    /// Moves over bytes that were sent. Calls `reset` with each stream that h2 has reset.
    pub(super) fn advance(&mut self, mut bytes: &[u8], mut reset: impl FnMut(u32)) {
        while !bytes.is_empty() {
            if self.left == 0 {
                let (count, header) = self.head.add(bytes);
                if let Some(head) = header.map(Head::of) {
                    self.left = head.length;
                    self.has_begun = true;
                    if head.kind == RST_STREAM {
                        reset(head.stream);
                    }
                }
                bytes = &bytes[count..];
            }
            let count = bytes.len().min(self.left);
            self.left -= count;
            bytes = &bytes[count..];
        }
    }
}

/// The header of a frame that begins at this place, if all of it is in one piece.
fn head_at(pieces: &[IoSlice<'_>], mut at: usize) -> Option<Head> {
    for piece in pieces {
        if at < piece.len() {
            return piece[at..].first_chunk().copied().map(Head::of);
        }
        at -= piece.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: usize, stream: u32) -> Vec<u8> {
        let mut frame = Vec::new();
        Head { length: payload, kind, flags: 0, stream }.put(&mut frame);
        frame.resize(HEADER + payload, 0);
        frame
    }

    /// Sends pieces as a connection does; returns what is sent, and the streams that are reset.
    fn sent(pieces: &[&[u8]], most: usize) -> (Vec<u8>, Vec<u32>) {
        let (mut writer, mut sent, mut resets) = (Writer::default(), Vec::new(), Vec::new());
        let mut left: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        while left.iter().any(|piece| !piece.is_empty()) {
            let slices: Vec<_> = left.iter().map(|piece| IoSlice::new(piece)).collect();
            let (mut count, is_sent) = match writer.next(&slices) {
                Next::Send(count) => (count.min(most), true),
                Next::Drop(count) => (count, false),
            };
            for piece in &mut left {
                let taken: Vec<u8> = piece.drain(..count.min(piece.len())).collect();
                count -= taken.len();
                if is_sent {
                    writer.advance(&taken, |stream| resets.push(stream));
                    sent.extend(taken);
                }
            }
        }
        (sent, resets)
    }

    #[test]
    fn updates_of_windows_are_dropped_and_all_else_is_sent() {
        let (settings, data, reset) = (frame(4, 6, 0), frame(0, 100, 1), frame(3, 4, 5));
        let updates = [frame(WINDOW_UPDATE, 4, 0), frame(WINDOW_UPDATE, 4, 1)].concat();
        let first = [&updates[..], &settings, &updates, &data[..HEADER]].concat();
        let last = [&updates[..], &reset].concat();
        let expected = [&settings[..], &data, &reset].concat();
        for most in [1, 8, 9, 50, 1000] {
            let (sent, resets) = sent(&[&first, &data[HEADER..], &last], most);
            assert_eq!((sent, resets), (expected.clone(), vec![5]), "{most} at a time");
        }
    }
}
