//! A header block (RFC 7541, section 6), read byte by byte.

const AUTHORITY: &[u8] = b":authority";
/// The index of `:authority` in the static table.
const INDEX: usize = 1;

/// The header block of a connection. Blocks follow each other without a gap.
#[derive(Debug, Default)]
pub(super) struct Block {
    next: Next,
    /// The field whose text is read.
    field: Field,
}

/// The meaning of the next byte.
#[derive(Debug, Default, Clone, Copy)]
enum Next {
    /// The first byte of a field, or of a change of the table's size.
    #[default]
    Field,
    /// A further byte of a number that began with the largest one that fits into its first byte.
    Number(Number),
    /// The first byte of a text: its encoding and length.
    Text,
    /// Bytes of a text.
    Bytes { left: usize },
}

#[derive(Debug, Clone, Copy)]
struct Number {
    of: Of,
    value: usize,
    shift: u32,
}

/// The subject of a number.
#[derive(Debug, Clone, Copy)]
enum Of {
    /// An indexed field, or the table's size: no text follows.
    Whole,
    /// The index of a field's name: the value follows.
    Name,
    /// The length of a text.
    Length,
}

/// A field with a text for its value, and perhaps for its name.
#[derive(Debug, Default, Clone, Copy)]
struct Field {
    is_authority: bool,
    /// The bytes of the name read so far, all of them equal to `:authority`; `None` once the name is
    /// known.
    name: Option<usize>,
    is_huffman: bool,
}

impl Block {
    /// Reads the next byte; replaces it if it is a percent sign in an authority.
    pub(super) fn read(&mut self, byte: &mut u8) {
        self.next = match self.next {
            Next::Field => self.begin(*byte),
            Next::Number(number) => self.number(number, *byte),
            Next::Text => {
                self.field.is_huffman = *byte & 0x80 != 0;
                self.first(Of::Length, *byte, 0x7f)
            }
            Next::Bytes { left } => {
                self.text(byte);
                if left > 1 { Next::Bytes { left: left - 1 } } else { self.end_text() }
            }
        };
    }

    fn begin(&mut self, byte: u8) -> Next {
        match byte {
            0x80.. => self.first(Of::Whole, byte, 0x7f),
            0x40.. => self.first(Of::Name, byte, 0x3f),
            0x20.. => self.first(Of::Whole, byte, 0x1f),
            _ => self.first(Of::Name, byte, 0x0f),
        }
    }

    /// The first byte of a number, whose bits are those of `mask`.
    fn first(&mut self, of: Of, byte: u8, mask: u8) -> Next {
        let value = usize::from(byte & mask);
        match byte & mask == mask {
            true => Next::Number(Number { of, value, shift: 0 }),
            false => self.numbered(of, value),
        }
    }

    fn number(&mut self, number: Number, byte: u8) -> Next {
        let Number { of, value, shift } = number;
        let part = usize::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        let value = value.saturating_add(part);
        match byte & 0x80 != 0 {
            true => Next::Number(Number { of, value, shift: shift.saturating_add(7) }),
            false => self.numbered(of, value),
        }
    }

    fn numbered(&mut self, of: Of, value: usize) -> Next {
        match (of, value) {
            (Of::Whole, _) => Next::Field,
            (Of::Name, index) => {
                let name = (index == 0).then_some(0);
                self.field = Field { is_authority: index == INDEX, name, is_huffman: false };
                Next::Text
            }
            (Of::Length, 0) => self.end_text(),
            (Of::Length, left) => Next::Bytes { left },
        }
    }

    fn text(&mut self, byte: &mut u8) {
        let Field { is_authority, name, is_huffman } = &mut self.field;
        match name {
            Some(read) if !*is_huffman && AUTHORITY.get(*read) == Some(&*byte) => *read += 1,
            // No name is that long, so nothing can complete it.
            Some(read) => *read = usize::MAX,
            None if *is_authority && !*is_huffman && *byte == b'%' => *byte = b'-',
            None => {}
        }
    }

    /// The value follows the name, and the next field the value.
    fn end_text(&mut self) -> Next {
        match self.field.name.take() {
            Some(read) => {
                self.field.is_authority = read == AUTHORITY.len();
                Next::Text
            }
            None => Next::Field,
        }
    }
}
