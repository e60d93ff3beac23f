//! Reads the few needed fields of saved_model.pb from the file. The graph, which may be hundreds of
//! megabytes, is skipped by seeking.

use std::{
    collections::BTreeMap,
    io::{BufReader, Read, Seek, SeekFrom},
};

use outrigger_proto::{
    raw::read::{MAX_DEPTH, Malformed},
    tensorflow::SignatureDef,
};
use prost::{DecodeError, Message};

use super::SavedModelError;

/// `SavedModel.meta_graphs`.
const META_GRAPHS: u32 = 2;
/// `MetaGraphDef.meta_info_def` and `.signature_def`.
const META_INFO: u32 = 1;
const SIGNATURES: u32 = 5;
/// `MetaInfoDef.tags`.
const TAGS: u32 = 4;

/// The most bytes of tags and signatures that are read, each counted with the memory of its own
/// allocation. A signature of a thousand inputs has about 100 KB.
pub(super) const MAX_READ: u64 = 512 << 10;
const ALLOCATION: u64 = 64;

/// One graph's tags, and its encoded signatures.
pub(super) struct Graph {
    pub(super) tags: Vec<String>,
    entries: Vec<Vec<u8>>,
}

/// The name of an entry of the map of signatures.
#[derive(Clone, PartialEq, Message)]
struct EntryName {
    #[prost(string, tag = "1")]
    key: String,
}

/// The signature of an entry.
#[derive(Clone, PartialEq, Message)]
struct EntryValue {
    #[prost(message, optional, tag = "2")]
    value: Option<SignatureDef>,
}

/// Reads the graphs of a SavedModel.
pub(super) fn graphs(mut file: impl Read + Seek) -> Result<Vec<Graph>, SavedModelError> {
    let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut stream = Stream { source: BufReader::new(file), room: MAX_READ };
    let (mut graphs, mut left) = (Vec::new(), length);
    while let Some((field, size)) = stream.next(&mut left)? {
        match field {
            META_GRAPHS => graphs.push(stream.graph(size)?),
            _ => stream.skip(size)?,
        }
    }
    Ok(graphs)
}

/// The file, read from front to back.
struct Stream<R> {
    source: BufReader<R>,
    /// The bytes that may still be read into memory.
    room: u64,
}

impl<R: Read + Seek> Stream<R> {
    fn graph(&mut self, mut left: u64) -> Result<Graph, SavedModelError> {
        self.charge(0)?;
        let mut graph = Graph { tags: Vec::new(), entries: Vec::new() };
        while let Some((field, size)) = self.next(&mut left)? {
            match field {
                META_INFO => self.tags(size, &mut graph.tags)?,
                SIGNATURES => graph.entries.push(self.read(size)?),
                _ => self.skip(size)?,
            }
        }
        Ok(graph)
    }

    fn tags(&mut self, mut left: u64, tags: &mut Vec<String>) -> Result<(), SavedModelError> {
        while let Some((field, size)) = self.next(&mut left)? {
            match field {
                TAGS => {
                    let tag = String::from_utf8(self.read(size)?);
                    tags.push(tag.map_err(|_| malformed(Malformed::Text))?);
                }
                _ => self.skip(size)?,
            }
        }
        Ok(())
    }

    /// The number and size of the next length-delimited field of a message of which `left` bytes
    /// are left; `None` at its end. Other fields are skipped. The field's content comes next, and
    /// is no longer counted in `left`.
    fn next(&mut self, left: &mut u64) -> Result<Option<(u32, u64)>, SavedModelError> {
        let mut groups = 0;
        while *left > 0 {
            let key = self.varint(left)?;
            let field = u32::try_from(key >> 3).map_err(|_| malformed(Malformed::Key))?;
            match key & 7 {
                _ if field == 0 => return Err(malformed(Malformed::Key)),
                0 => drop(self.varint(left)?),
                1 => self.skip_of(8, left)?,
                2 => {
                    let size = self.varint(left)?;
                    if groups == 0 {
                        *left = left.checked_sub(size).ok_or(malformed(Malformed::Truncated))?;
                        return Ok(Some((field, size)));
                    }
                    self.skip_of(size, left)?;
                }
                3 if groups < MAX_DEPTH => groups += 1,
                3 => return Err(malformed(Malformed::Depth)),
                4 if groups > 0 => groups -= 1,
                4 => return Err(malformed(Malformed::Group)),
                5 => self.skip_of(4, left)?,
                _ => return Err(malformed(Malformed::Key)),
            }
        }
        if groups > 0 { Err(malformed(Malformed::Truncated)) } else { Ok(None) }
    }

    fn varint(&mut self, left: &mut u64) -> Result<u64, SavedModelError> {
        let mut value = 0;
        for index in 0..10 {
            *left = left.checked_sub(1).ok_or(malformed(Malformed::Truncated))?;
            let mut byte = [0];
            self.source.read_exact(&mut byte).map_err(failed)?;
            value |= u64::from(byte[0] & 0x7f) << (7 * index);
            if byte[0] < 0x80 {
                // The tenth byte has room for one bit.
                let fits = index < 9 || byte[0] < 2;
                return fits.then_some(value).ok_or(malformed(Malformed::Varint));
            }
        }
        Err(malformed(Malformed::Varint))
    }

    fn skip_of(&mut self, size: u64, left: &mut u64) -> Result<(), SavedModelError> {
        *left = left.checked_sub(size).ok_or(malformed(Malformed::Truncated))?;
        self.skip(size)
    }

    fn skip(&mut self, size: u64) -> Result<(), SavedModelError> {
        let size = i64::try_from(size).map_err(|_| malformed(Malformed::Truncated))?;
        self.source.seek_relative(size).map_err(failed)
    }

    fn read(&mut self, size: u64) -> Result<Vec<u8>, SavedModelError> {
        self.charge(size)?;
        let mut content = vec![0; usize::try_from(size).map_err(|_| too_large())?];
        self.source.read_exact(&mut content).map_err(failed)?;
        Ok(content)
    }

    fn charge(&mut self, size: u64) -> Result<(), SavedModelError> {
        let room = self.room.checked_sub(ALLOCATION).and_then(|room| room.checked_sub(size));
        self.room = room.ok_or_else(too_large)?;
        Ok(())
    }
}

impl Graph {
    /// The encoded signatures by name. As in any protobuf map, the last of equal names counts.
    pub(super) fn signatures(&self) -> Result<BTreeMap<String, &[u8]>, SavedModelError> {
        let named = |entry: &'_ Vec<u8>| {
            EntryName::decode(entry.as_slice()).map(|name| name.key).map_err(undecodable)
        };
        self.entries.iter().map(|entry| Ok((named(entry)?, entry.as_slice()))).collect()
    }
}

/// Decodes a signature of [`Graph::signatures`].
pub(super) fn signature(entry: &[u8]) -> Result<SignatureDef, SavedModelError> {
    Ok(EntryValue::decode(entry).map_err(undecodable)?.value.unwrap_or_default())
}

fn failed(error: std::io::Error) -> SavedModelError {
    SavedModelError::Unreadable(error.to_string())
}

fn malformed(error: Malformed) -> SavedModelError {
    SavedModelError::Unreadable(error.to_string())
}

fn undecodable(error: DecodeError) -> SavedModelError {
    SavedModelError::Unreadable(error.to_string())
}

fn too_large() -> SavedModelError {
    SavedModelError::TooLarge { limit: MAX_READ }
}
