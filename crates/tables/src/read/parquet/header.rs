//! The headers of pages. Only the sizes are of interest, which the library does not show before it has
//! decompressed the page.

use std::io::{self, Read};

use super::compact::{Compact, STRUCT, TRUE, invalid};

/// The most bytes of a header, statistics included.
const MAX_HEADER: u64 = 1 << 20;

/// The fields of `PageHeader`.
const KIND: i64 = 1;
const UNCOMPRESSED: i64 = 2;
const COMPRESSED: i64 = 3;
const DATA_PAGE_V2: i64 = 8;
/// The fields of `DataPageHeaderV2`.
const DEFINITION_LEVELS: i64 = 5;
const REPETITION_LEVELS: i64 = 6;
const IS_COMPRESSED: i64 = 7;

/// The kind of a page that holds no values.
const INDEX_PAGE: i64 = 1;

/// The header of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    kind: i64,
    /// The bytes of the page when it is decompressed, as the header declares them.
    pub(super) uncompressed: u64,
    /// The bytes of the page in the file.
    pub(super) compressed: u64,
    /// The first bytes of the page that are never compressed.
    pub(super) levels: u64,
    /// True if the page is compressed as its column is.
    pub(super) is_compressed: bool,
    /// The bytes of the header itself.
    pub(super) length: u64,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// It is not valid, or too long.
    pub(super) fn read(from: impl Read) -> io::Result<Self> {
        let mut input = Compact { input: from.take(MAX_HEADER) };
        let (mut kind, mut uncompressed, mut compressed) = (None, None, None);
        let (mut levels, mut is_compressed) = ([0; 2], true);
        input.fields(0, |input, id, of| {
            let field = match id {
                KIND => &mut kind,
                UNCOMPRESSED => &mut uncompressed,
                COMPRESSED => &mut compressed,
                DATA_PAGE_V2 if of == STRUCT => {
                    return input.fields(1, |input, id, of| {
                        match id {
                            DEFINITION_LEVELS => levels[0] = input.integer(of)?,
                            REPETITION_LEVELS => levels[1] = input.integer(of)?,
                            IS_COMPRESSED => is_compressed = of == TRUE,
                            _ => input.skip(of, 2)?,
                        }
                        Ok(())
                    });
                }
                _ => return input.skip(of, 1),
            };
            *field = Some(input.integer(of)?);
            Ok(())
        })?;
        let invalid = || invalid("a page's header has no valid sizes");
        let size = |field: i64| u64::try_from(field).map_err(|_| invalid());
        Ok(Self {
            kind: kind.ok_or_else(invalid)?,
            uncompressed: size(uncompressed.ok_or_else(invalid)?)?,
            compressed: size(compressed.ok_or_else(invalid)?)?,
            levels: size(levels[0])?.saturating_add(size(levels[1])?),
            is_compressed,
            length: MAX_HEADER - input.input.limit(),
        })
    }

    /// True if the page holds no values and no dictionary.
    pub(super) fn is_index(&self) -> bool {
        self.kind == INDEX_PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of 200 bytes, 100 in the file, with a struct that has a text and a list.
    const PAGE: &[u8] = &[
        0x15, 0x00, 0x15, 0x90, 0x03, 0x15, 0xc8, 0x01, // three integers
        0x2c, 0x15, 0x08, 0x18, 0x02, b'a', b'b', 0x19, 0x21, 0x01, 0x02, 0x11, 0x00, 0x00,
    ];

    #[test]
    fn the_sizes_of_a_page_are_read_and_the_rest_is_skipped() {
        let mut more = PAGE.to_vec();
        more.extend([1, 2, 3]);
        let header = Header::read(more.as_slice()).expect("a header");
        assert_eq!((header.kind, header.uncompressed, header.compressed), (0, 200, 100));
        assert_eq!((header.levels, header.is_compressed), (0, true));
        assert_eq!(header.length, PAGE.len() as u64);
        // The fields 5, 6 and 7 of the struct 8.
        let second = [&PAGE[..8], &[0x5c, 0x55, 0x06, 0x15, 0x08, 0x12, 0x00, 0x00]].concat();
        let header = Header::read(second.as_slice()).expect("a header");
        assert_eq!((header.levels, header.is_compressed), (7, false));
    }

    #[test]
    fn what_is_not_a_header_is_refused() {
        let endless = [&PAGE[..8], &[0x18, 0xff, 0xff, 0xff, 0x7f]].concat();
        let nested = [&PAGE[..8], &[0x1c; 100]].concat();
        let lists = [&PAGE[..8], &[0x19; 100]].concat();
        let negative = [0x15, 0x00, 0x15, 0x01, 0x15, 0x00, 0x00];
        for wrong in [&[][..], &[0], &PAGE[..9], &endless, &nested, &lists, &negative, &[0xff; 40]]
        {
            assert!(Header::read(wrong).is_err(), "{wrong:?}");
        }
        let long = [&PAGE[..8], &[0x18, 0x80, 0x80, 0x80, 0x01]].concat();
        assert!(Header::read(long.chain(io::repeat(0))).is_err());
    }
}
