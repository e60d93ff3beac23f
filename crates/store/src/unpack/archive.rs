//! Reads the entries of a tar archive as a stream: POSIX ustar and pax, GNU long names. All sizes
//! are limited and nothing is guessed. Only the header type of the `tar` crate is used: its
//! iterator reads long names of any length into memory, and interprets a pax size differently in
//! different modes.

use tar::{EntryType, Header};

use super::source::Source;
use crate::{Error, LayerProblem, Result};

const BLOCK: usize = 512;
/// The size limit of a pax header or a GNU long name, bytes.
const MAX_EXTENSION: u64 = 1 << 20;

/// A tar archive over a layer's bytes.
pub(super) struct Archive<'a> {
    source: Source<'a>,
    offset: u64,
    /// Unread bytes of the current entry's content.
    content: u64,
    /// Unread bytes of the padding after it.
    padding: u64,
}

/// An entry's header as found in the archive, untrusted.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) kind: Kind,
    /// The bytes of content that follow.
    pub(super) size: u64,
}

#[derive(Debug)]
pub(super) enum Kind {
    File,
    Dir,
    Symlink(Vec<u8>),
    HardLink(Vec<u8>),
    /// A device, pipe or sparse file, with its name for the error message.
    Refused(&'static str),
    Unknown(u8),
}

/// The values that extension headers set for the entry after them.
#[derive(Debug, Default)]
struct Extensions {
    name: Option<Vec<u8>>,
    /// The name of a sparse file, which has another one in its header.
    sparse_name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    sparse: bool,
}

impl<'a> Archive<'a> {
    pub(super) fn new(source: Source<'a>) -> Self {
        Self { source, offset: 0, content: 0, padding: 0 }
    }

    /// The next entry; the rest of the current one is skipped.
    pub(super) fn next(&mut self) -> Result<Option<Entry>> {
        let mut extensions = Extensions::default();
        loop {
            self.skip()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let size = size(&header).ok_or_else(|| self.invalid("its size is not a number"))?;
            match header.entry_type() {
                EntryType::GNULongName => extensions.name = Some(self.long_name(size)?),
                EntryType::GNULongLink => extensions.link = Some(self.long_name(size)?),
                EntryType::XHeader => {
                    let records = self.extension(size)?;
                    extensions.read(&records).map_err(|what| self.invalid(what))?;
                }
                EntryType::XGlobalHeader => {
                    let mut global = Extensions::default();
                    let records = self.extension(size)?;
                    global.read(&records).map_err(|what| self.invalid(what))?;
                    if !global.is_empty() {
                        return Err(self.invalid("a global header sets a name, link or size"));
                    }
                }
                _ => return self.entry(&header, size, extensions).map(Some),
            }
        }
    }

    /// Reads from the current entry's content; 0 at its end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let most = usize::try_from(self.content).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.some(&mut buffer[..most])?;
        self.content -= count as u64;
        Ok(count)
    }

    /// Reads the rest of the layer after the last entry, and checks the layer's digest.
    pub(super) fn finish(self) -> Result<()> {
        self.source.finish()
    }

    fn entry(&mut self, header: &Header, size: u64, extensions: Extensions) -> Result<Entry> {
        let name = extensions.sparse_name.or(extensions.name);
        let name = name.unwrap_or_else(|| header.path_bytes().into_owned());
        let size = match header.entry_type() {
            kind if has_content(kind) => extensions.size.unwrap_or(size),
            _ => 0,
        };
        if header.entry_type().is_gnu_sparse() {
            self.skip_sparse_map(header)?;
        }
        let link = || header.link_name_bytes().map(|link| link.into_owned()).unwrap_or_default();
        let kind = match header.entry_type() {
            _ if extensions.sparse => Kind::Refused("sparse files"),
            // Archives from before POSIX mark directories by a trailing slash.
            EntryType::Regular if name.ends_with(b"/") => Kind::Dir,
            EntryType::Regular | EntryType::Continuous => Kind::File,
            EntryType::Directory => Kind::Dir,
            EntryType::Symlink => Kind::Symlink(extensions.link.unwrap_or_else(link)),
            EntryType::Link => Kind::HardLink(extensions.link.unwrap_or_else(link)),
            EntryType::Char | EntryType::Block => Kind::Refused("devices"),
            EntryType::Fifo => Kind::Refused("named pipes"),
            EntryType::GNUSparse => Kind::Refused("sparse files"),
            other => Kind::Unknown(other.as_byte()),
        };
        self.source.expect(size)?;
        self.starts(size);
        Ok(Entry { name, kind, size })
    }

    fn header(&mut self) -> Result<Option<Header>> {
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        if !self.block(block)? || block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if header.cksum().ok() != Some(checksum(header.as_bytes())) {
            return Err(self.invalid("its checksum is wrong"));
        }
        Ok(Some(header))
    }

    /// Reads a block; false at the end of the archive.
    fn block(&mut self, block: &mut [u8; BLOCK]) -> Result<bool> {
        let mut filled = 0;
        while filled < BLOCK {
            match self.source.read(&mut block[filled..])? {
                0 if filled == 0 => return Ok(false),
                0 => return Err(self.source.error(LayerProblem::Truncated)),
                count => filled += count,
            }
        }
        self.offset += BLOCK as u64;
        Ok(true)
    }

    /// Skips the blocks that continue the map of a sparse file in GNU tar's old format; they are
    /// not part of its size.
    fn skip_sparse_map(&mut self, header: &Header) -> Result<()> {
        let mut block = *header.as_bytes();
        let mut flag = 482;
        while block[flag] != 0 {
            if !self.block(&mut block)? {
                return Err(self.source.error(LayerProblem::Truncated));
            }
            flag = 504;
        }
        Ok(())
    }

    fn starts(&mut self, size: u64) {
        self.content = size;
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
    }

    fn long_name(&mut self, size: u64) -> Result<Vec<u8>> {
        let mut name = self.extension(size)?;
        if name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    fn extension(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > MAX_EXTENSION {
            return Err(self.invalid("an extension is too long"));
        }
        self.starts(size);
        let mut content = vec![0; usize::try_from(size).expect("bounded above")];
        let mut filled = 0;
        while filled < content.len() {
            filled += self.read(&mut content[filled..])?;
        }
        Ok(content)
    }

    fn skip(&mut self) -> Result<()> {
        let mut buffer = [0; 16 << 10];
        while self.content > 0 {
            self.read(&mut buffer)?;
        }
        while self.padding > 0 {
            let most = usize::try_from(self.padding).expect("less than a block");
            let count = self.source.read(&mut buffer[..most])? as u64;
            self.offset += count;
            // Some writers omit the padding after the last entry.
            self.padding = if count == 0 { 0 } else { self.padding - count };
        }
        Ok(())
    }

    /// Reads at least one byte, unless `buffer` is empty; the end of the archive is an error.
    fn some(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let count = self.source.read(buffer)?;
        self.offset += count as u64;
        if count == 0 {
            return Err(self.source.error(LayerProblem::Truncated));
        }
        Ok(count)
    }

    fn invalid(&self, what: &'static str) -> Error {
        self.source.error(LayerProblem::Header { offset: self.offset - BLOCK as u64, what })
    }
}

impl Extensions {
    fn is_empty(&self) -> bool {
        self.name.is_none() && self.link.is_none() && self.size.is_none() && !self.sparse
    }

    /// Reads pax records. Each is its length, a space, `key=value` and a newline; the length
    /// counts the whole record.
    fn read(&mut self, mut records: &[u8]) -> Result<(), &'static str> {
        const INVALID: &str = "a pax record is invalid";
        while !records.is_empty() {
            let space = records.iter().position(|byte| *byte == b' ').ok_or(INVALID)?;
            let length = number(&records[..space]).ok_or(INVALID)?;
            let length = usize::try_from(length).map_err(|_| INVALID)?;
            let record = records.get(space + 1..length).ok_or(INVALID)?;
            let record = record.strip_suffix(b"\n").ok_or(INVALID)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(INVALID)?;
            self.set(&record[..equals], &record[equals + 1..])?;
            records = &records[length..];
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        match key {
            b"path" => self.name = Some(value.to_owned()),
            b"linkpath" => self.link = Some(value.to_owned()),
            b"size" => self.size = Some(number(value).ok_or("a pax size is not a number")?),
            _ if key.starts_with(b"GNU.sparse.") => {
                self.sparse = true;
                if key == b"GNU.sparse.name" {
                    self.sparse_name = Some(value.to_owned());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// False if nothing follows an entry's header, whatever its size says, as other readers of images
/// have it.
fn has_content(kind: EntryType) -> bool {
    use EntryType as T;
    !matches!(kind, T::Link | T::Symlink | T::Char | T::Block | T::Directory | T::Fifo)
}

/// The size that a header states; `None` if it is no number below 2^64. Octal digits, or in GNU
/// tar's extension a byte 0x80 and eleven bytes of a big-endian number.
fn size(header: &Header) -> Option<u64> {
    let field = &header.as_old().size;
    match field {
        // The `tar` crate ignores the upper bytes.
        [0x80, 0, 0, 0, number @ ..] => Some(u64::from_be_bytes(*number)),
        [0x80..=0xff, ..] => None,
        _ => header.entry_size().ok(),
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    plain.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten()
}

/// The header's checksum: the sum of all bytes, with the checksum field itself taken as spaces.
fn checksum(header: &[u8; BLOCK]) -> u32 {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    sum(&header[..148]) + 8 * u32::from(b' ') + sum(&header[156..])
}
