//! The fields of a message in a file. Long ones are skipped by seeking, so that a message of
//! gigabytes is read in the memory of the few fields that are needed.

use std::io::{self, BufReader, Read, Seek, SeekFrom};

use super::read::{MAX_DEPTH, Malformed};

/// The memory that counts for each piece that is read, besides its bytes.
const ALLOCATION: u64 = 64;

/// An error in reading a message from a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Its bytes are not a message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The pieces that are needed take more memory than permitted.
    #[error("the parts that are read have more than {0} bytes")]
    TooLarge(u64),
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileValue {
    /// An integer, a bool or an enum.
    Varint(u64),
    /// A message, a text, bytes or a packed list of so many bytes, which come next in the file. They
    /// are read, skipped, or walked through as a message before the next field of this one.
    Bytes(u64),
}

/// A message in a file, read from front to back.
#[derive(Debug)]
pub struct MessageFile<R> {
    source: BufReader<R>,
    limit: u64,
    /// The bytes that may still be read into memory.
    room: u64,
}

impl<R: Read + Seek> MessageFile<R> {
    /// A message that is the whole of `file`, and its size in bytes. The pieces that are read may
    /// have `limit` bytes together, each counted with the memory of its own allocation.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(mut file: R, limit: u64) -> Result<(Self, u64), FileError> {
        let size = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        Ok((Self { source: BufReader::new(file), limit, room: limit }, size))
    }

    /// The number and the value of the next field of a message of which `left` bytes are left; `None`
    /// at its end. Fields of four or eight bytes, and groups, are skipped. The bytes of a value are
    /// no longer counted in `left`.
    ///
    /// # Errors
    /// The file cannot be read, or its bytes are not a message.
    pub fn next(&mut self, left: &mut u64) -> Result<Option<(u32, FileValue)>, FileError> {
        let mut groups = 0;
        while *left > 0 {
            let key = self.varint(left)?;
            let field = u32::try_from(key >> 3).map_err(|_| Malformed::Key)?;
            match key & 7 {
                _ if field == 0 => return Err(Malformed::Key.into()),
                0 => {
                    let value = self.varint(left)?;
                    if groups == 0 {
                        return Ok(Some((field, FileValue::Varint(value))));
                    }
                }
                1 => self.skip_of(8, left)?,
                2 => {
                    let size = self.varint(left)?;
                    if groups == 0 {
                        *left = left.checked_sub(size).ok_or(Malformed::Truncated)?;
                        return Ok(Some((field, FileValue::Bytes(size))));
                    }
                    self.skip_of(size, left)?;
                }
                3 if groups < MAX_DEPTH => groups += 1,
                3 => return Err(Malformed::Depth.into()),
                4 if groups > 0 => groups -= 1,
                4 => return Err(Malformed::Group.into()),
                5 => self.skip_of(4, left)?,
                _ => return Err(Malformed::Key.into()),
            }
        }
        if groups > 0 { Err(Malformed::Truncated.into()) } else { Ok(None) }
    }

    fn skip_of(&mut self, size: u64, left: &mut u64) -> Result<(), FileError> {
        *left = left.checked_sub(size).ok_or(Malformed::Truncated)?;
        self.skip(size)
    }

    /// The next number of a packed list of which `left` bytes are left.
    ///
    /// # Errors
    /// The file cannot be read, or its bytes are no number.
    pub fn varint(&mut self, left: &mut u64) -> Result<u64, FileError> {
        let mut value = 0;
        for index in 0..10 {
            *left = left.checked_sub(1).ok_or(Malformed::Truncated)?;
            let mut byte = [0];
            self.source.read_exact(&mut byte)?;
            value |= u64::from(byte[0] & 0x7f) << (7 * index);
            if byte[0] < 0x80 {
                // The tenth byte has room for one bit.
                let fits = index < 9 || byte[0] < 2;
                return fits.then_some(value).ok_or(Malformed::Varint.into());
            }
        }
        Err(Malformed::Varint.into())
    }

    /// Skips the next `size` bytes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn skip(&mut self, size: u64) -> Result<(), FileError> {
        let size = i64::try_from(size).map_err(|_| Malformed::Truncated)?;
        Ok(self.source.seek_relative(size)?)
    }

    /// The next `size` bytes.
    ///
    /// # Errors
    /// The file cannot be read, or the limit of memory is reached.
    pub fn read(&mut self, size: u64) -> Result<Vec<u8>, FileError> {
        self.charge(size)?;
        let too_large = FileError::TooLarge(self.limit);
        let mut content = vec![0; usize::try_from(size).map_err(|_| too_large)?];
        self.source.read_exact(&mut content)?;
        Ok(content)
    }

    /// The next `size` bytes as text.
    ///
    /// # Errors
    /// As [`Self::read`], or the bytes are no text.
    pub fn text(&mut self, size: u64) -> Result<String, FileError> {
        Ok(String::from_utf8(self.read(size)?).map_err(|_| Malformed::Text)?)
    }

    /// Counts a piece of `size` bytes that the caller keeps.
    ///
    /// # Errors
    /// The limit of memory is reached.
    pub fn charge(&mut self, size: u64) -> Result<(), FileError> {
        let room = self.room.checked_sub(ALLOCATION).and_then(|room| room.checked_sub(size));
        self.room = room.ok_or(FileError::TooLarge(self.limit))?;
        Ok(())
    }
}
