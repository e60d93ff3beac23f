//! Bytes at any position: those of an open file, or of something elsewhere that is read in ranges.

use std::{
    fmt,
    fs::{File, Metadata},
    io::{self, BufReader, Read},
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use parquet::{
    errors::{ParquetError, Result},
    file::reader::{ChunkReader, Length},
};

/// The bytes at the end of a file that are read first, since they have the footer.
const TAIL: usize = 64 << 10;
/// The most bytes that are read ahead for all columns together, and the least and the most for one.
const AHEAD: usize = 16 << 20;
const LEAST_AHEAD: usize = 16 << 10;
const MOST_AHEAD: usize = 4 << 20;

/// Bytes elsewhere, such as an object in a store. They do not change while they are read.
pub trait ReadAt: fmt::Debug + Send + Sync {
    /// The size and the identity of the content.
    fn stat(&self) -> Stat;

    /// The `length` bytes that begin at `start`, all of which exist. Blocks.
    ///
    /// # Errors
    /// They cannot be read.
    fn read_at(&self, start: u64, length: usize) -> io::Result<Bytes>;
}

/// The size and the identity of a file's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Its bytes.
    pub size: u64,
    /// The time of its last modification, in nanoseconds since 1970; 0 if it is not known.
    pub modified: u64,
    /// A name of the content that changes with it, such as an ETag, if there is one.
    pub tag: Option<String>,
}

impl Stat {
    /// That of a file with this metadata.
    pub fn of(file: &Metadata) -> Self {
        let modified = file.modified().map_or(0, Self::nanoseconds);
        Self { size: file.len(), modified, tag: None }
    }

    /// The time of modification as it is stated here.
    pub fn nanoseconds(modified: SystemTime) -> u64 {
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// An open file.
#[derive(Debug, Clone)]
pub(crate) enum Blob {
    File(Arc<File>),
    Elsewhere(Arc<Window>),
}

/// Bytes elsewhere, of which one range is held.
#[derive(Debug)]
pub(crate) struct Window {
    source: Arc<dyn ReadAt>,
    /// The position of the end: of the source, or of the part that is read ahead.
    end: u64,
    /// The bytes that are read at a time.
    ahead: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    start: u64,
    bytes: Bytes,
}

/// Reads on from a position.
#[derive(Debug)]
pub(crate) enum BlobReader {
    File(BufReader<File>),
    Elsewhere { window: Arc<Window>, at: u64 },
}

impl Blob {
    /// The bytes of `source`. The end of it is read when it is first used.
    pub(crate) fn elsewhere(source: Arc<dyn ReadAt>) -> Self {
        let end = source.stat().size;
        Self::Elsewhere(Arc::new(Window { source, end, ahead: TAIL, held: Mutex::default() }))
    }

    /// The bytes that are read ahead for each of `columns` that are read together.
    pub(crate) fn ahead(columns: usize) -> usize {
        (AHEAD / columns.max(1)).clamp(LEAST_AHEAD, MOST_AHEAD)
    }

    /// The same bytes for a reader that reads up to `end` in order, `ahead` bytes at a time.
    pub(crate) fn part(&self, end: u64, ahead: usize) -> Self {
        match self {
            Self::File(file) => Self::File(Arc::clone(file)),
            Self::Elsewhere(window) => {
                let (source, end) = (Arc::clone(&window.source), end.min(window.end));
                Self::Elsewhere(Arc::new(Window { source, end, ahead, held: Mutex::default() }))
            }
        }
    }

    /// Has the next `length` bytes read at once, since they are used together. More than 4 MiB are
    /// not held.
    pub(crate) fn expect(&self, start: u64, length: u64) -> io::Result<()> {
        match (self, usize::try_from(length)) {
            (Self::Elsewhere(window), Ok(length)) if length <= MOST_AHEAD => {
                window.hold(start, length).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// The size and the identity of the content.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        match self {
            Self::File(file) => Ok(Stat::of(&file.metadata()?)),
            Self::Elsewhere(window) => Ok(window.source.stat()),
        }
    }
}

impl From<File> for Blob {
    fn from(file: File) -> Self {
        Self::File(file.into())
    }
}

impl Window {
    /// The bytes from `start` on, at least `length` of them unless they end before.
    fn hold(&self, start: u64, length: usize) -> io::Result<Bytes> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let left = usize::try_from(self.end.saturating_sub(start)).unwrap_or(usize::MAX);
        let length = length.min(left);
        if let Some(bytes) = held.from(start).filter(|bytes| bytes.len() >= length) {
            return Ok(bytes);
        }
        // The end of a file is read with what is before it.
        let first = match left < self.ahead && held.bytes.is_empty() {
            true => self.end.saturating_sub(self.ahead as u64),
            false => start,
        };
        let left = usize::try_from(self.end.saturating_sub(first)).unwrap_or(usize::MAX);
        // Little is read where the reader jumps to: it may jump again.
        let follows = first < start || held.is_followed_by(start);
        let ahead = if follows { self.ahead } else { self.ahead.min(LEAST_AHEAD) };
        let bytes = self.source.read_at(first, length.max(ahead).min(left))?;
        *held = Held { start: first, bytes };
        held.from(start).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Held {
    /// The held bytes from `start` on; `None` if there are none.
    fn from(&self, start: u64) -> Option<Bytes> {
        let skipped = usize::try_from(start.checked_sub(self.start)?).ok()?;
        (skipped < self.bytes.len()).then(|| self.bytes.slice(skipped..))
    }

    /// True if `start` is a position of the held bytes, or the next one.
    fn is_followed_by(&self, start: u64) -> bool {
        let end = self.start + self.bytes.len() as u64;
        !self.bytes.is_empty() && (self.start..=end).contains(&start)
    }
}

impl Length for Blob {
    fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            Self::Elsewhere(window) => window.source.stat().size,
        }
    }
}

impl ChunkReader for Blob {
    type T = BlobReader;

    fn get_read(&self, start: u64) -> Result<BlobReader> {
        Ok(match self {
            Self::File(file) => BlobReader::File(file.get_read(start)?),
            Self::Elsewhere(window) => {
                BlobReader::Elsewhere { window: Arc::clone(window), at: start }
            }
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let window = match self {
            Self::File(file) => return file.get_bytes(start, length),
            Self::Elsewhere(window) => window,
        };
        let end = start.checked_add(length as u64);
        if end.is_none_or(|end| end > window.source.stat().size) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are past the end")));
        }
        // A range that is larger than the window, or not in its part, is not kept.
        let is_inside = length <= MOST_AHEAD && end.is_some_and(|end| end <= window.end);
        match is_inside {
            true => Ok(window.hold(start, length)?.slice(..length)),
            false => Ok(window.source.read_at(start, length)?),
        }
    }
}

impl Read for BlobReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (window, at) = match self {
            Self::File(file) => return file.read(buffer),
            Self::Elsewhere { window, at } => (window, at),
        };
        if *at >= window.end || buffer.is_empty() {
            return Ok(0);
        }
        let bytes = window.hold(*at, 1)?;
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        *at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes in memory that count how they are read.
    #[derive(Debug, Default)]
    struct Counted {
        bytes: Bytes,
        ranges: Mutex<Vec<(u64, usize)>>,
    }

    impl ReadAt for Counted {
        fn stat(&self) -> Stat {
            Stat { size: self.bytes.len() as u64, modified: 0, tag: None }
        }

        fn read_at(&self, start: u64, length: usize) -> io::Result<Bytes> {
            self.ranges.lock().expect("not poisoned").push((start, length));
            let start = usize::try_from(start).expect("small");
            Ok(self.bytes.slice(start..start + length))
        }
    }

    fn counted(size: usize) -> (Arc<Counted>, Blob) {
        let bytes = (0..size).map(|at| (at % 251) as u8).collect();
        let source = Arc::new(Counted { bytes, ..Counted::default() });
        (Arc::clone(&source), Blob::elsewhere(source))
    }

    fn ranges(source: &Counted) -> Vec<(u64, usize)> {
        source.ranges.lock().expect("not poisoned").clone()
    }

    #[test]
    fn the_end_of_a_file_is_read_once() {
        let (source, blob) = counted(100_000);
        assert_eq!(blob.get_bytes(99_992, 8).expect("read"), source.bytes.slice(99_992..));
        assert_eq!(blob.get_bytes(60_000, 39_992).expect("read").len(), 39_992);
        assert_eq!(ranges(&source), [(100_000 - TAIL as u64, TAIL)]);
        assert!(blob.get_bytes(99_999, 2).is_err());
        assert!(blob.get_bytes(u64::MAX, 2).is_err());
    }

    #[test]
    fn a_column_is_read_ahead_up_to_its_end() {
        let (source, blob) = counted(100_000);
        let column = blob.part(50_000, 1000);
        column.expect(10_000, 20).expect("read");
        assert_eq!(
            column.get_bytes(10_020, 500).expect("read"),
            source.bytes.slice(10_020..10_520)
        );
        column.expect(10_520, 3000).expect("read");
        assert_eq!(column.get_bytes(10_520, 3000).expect("read").len(), 3000);
        let mut all = Vec::new();
        column.get_read(49_500).expect("a reader").read_to_end(&mut all).expect("read");
        assert_eq!(all, source.bytes.slice(49_500..50_000));
        assert_eq!(ranges(&source), [(10_000, 1000), (10_520, 3000), (49_500, 500)]);
    }

    #[test]
    fn little_is_read_after_a_jump() {
        let (source, blob) = counted(200_000);
        let column = blob.part(200_000, 60_000);
        for start in [0, 50_000, 50_100, 66_384] {
            let mut some = [0; 20];
            let mut reader = column.get_read(start).expect("a reader");
            reader.read_exact(&mut some).expect("read");
        }
        let least = LEAST_AHEAD;
        assert_eq!(ranges(&source), [(0, least), (50_000, least), (66_384, 60_000)]);
    }

    #[test]
    fn a_file_is_the_same_as_bytes_elsewhere() {
        use std::io::Write as _;
        let (source, elsewhere) = counted(5000);
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&source.bytes).expect("written");
        let file = Blob::from(file);
        for blob in [&file, &elsewhere] {
            assert_eq!((blob.len(), blob.stat().expect("known").size), (5000, 5000));
            assert_eq!(blob.get_bytes(7, 90).expect("read"), source.bytes.slice(7..97));
            let mut some = [0; 40];
            let mut reader = blob.part(5000, 100).get_read(4900).expect("a reader");
            reader.read_exact(&mut some).expect("read");
            assert_eq!(some, source.bytes[4900..4940]);
        }
    }
}
