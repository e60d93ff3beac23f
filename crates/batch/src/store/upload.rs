//! An object that is being written to a store of objects: in one request if it is small, and in
//! parts if it is large.

use std::io::{self, Write};

use bytes::Bytes;

use super::{objects::Failure, remote::Remote};

/// The bytes of a part, but for the last one. S3 has parts of at least 5 MiB.
pub(super) const PART: usize = 8 << 20;
/// The most parts of an object, in all stores.
const MOST_PARTS: usize = 10_000;

/// An object that is being written. At most one part of it is in memory.
#[derive(Debug)]
pub(super) struct Upload {
    remote: Remote,
    name: String,
    key: String,
    buffer: Vec<u8>,
    parts: Option<Parts>,
    bytes: u64,
}

/// The parts that the store has.
#[derive(Debug)]
struct Parts {
    upload: String,
    names: Vec<String>,
}

impl Upload {
    pub(super) fn new(remote: &Remote, name: &str) -> Self {
        let (remote, key) = (remote.clone(), remote.key(name));
        Self { remote, name: name.to_owned(), key, buffer: Vec::new(), parts: None, bytes: 0 }
    }

    /// Completes the object. Returns true if it was created: a small object is not if the key is
    /// taken. A large one replaces an object with its key, so its name must be its own.
    pub(super) fn finish(mut self, step: impl Fn(&str)) -> io::Result<bool> {
        if self.parts.is_none() {
            step("put");
            let content = Bytes::from(std::mem::take(&mut self.buffer));
            return self.remote.create(&self.name, &content);
        }
        if !self.buffer.is_empty() {
            step("put the last part");
            self.part()?;
        }
        step("complete");
        let Some(parts) = &self.parts else { return Ok(false) };
        let Remote { objects, patience, .. } = &self.remote;
        let done = patience.call(|| objects.finish_parts(&self.key, &parts.upload, &parts.names));
        let done = match done {
            // The answer to an earlier request was lost.
            Err(Failure::Absent) if self.is_complete()? => Ok(true),
            done => done.map(|()| true).map_err(|failure| self.remote.error(failure)),
        };
        if done.is_ok() {
            self.parts = None;
        }
        done
    }

    fn is_complete(&self) -> io::Result<bool> {
        let Remote { objects, patience, .. } = &self.remote;
        match patience.call(|| objects.stat(&self.key)) {
            Ok(stat) => Ok(stat.size == self.bytes),
            Err(Failure::Absent) => Ok(false),
            Err(failure) => Err(self.remote.error(failure)),
        }
    }

    /// Sends the buffer as a part.
    fn part(&mut self) -> io::Result<()> {
        let Self { remote, key, buffer, parts, bytes, .. } = self;
        let content = Bytes::from(std::mem::take(buffer));
        let parts = match parts {
            Some(parts) => parts,
            None => {
                let upload = remote.call(|| remote.objects.begin_parts(key))?;
                parts.insert(Parts { upload, names: Vec::new() })
            }
        };
        let number = parts.names.len();
        if number == MOST_PARTS {
            let message = "the object is too large: chunk_rows must be smaller".to_owned();
            return Err(remote.error(Failure::Other(message)));
        }
        let part = || remote.objects.put_part(key, &parts.upload, number, &content);
        let name = remote.call(part)?;
        parts.names.push(name);
        *bytes += content.len() as u64;
        Ok(())
    }
}

impl Write for Upload {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let count = data.len().min(PART - self.buffer.len());
        let (length, capacity) = (self.buffer.len(), self.buffer.capacity());
        if length + count > capacity {
            let wanted = if self.parts.is_some() { PART } else { 2 * capacity };
            self.buffer.reserve_exact(wanted.clamp(length + count, PART) - length);
        }
        self.buffer.extend_from_slice(&data[..count]);
        if self.buffer.len() == PART {
            self.part()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload {
    /// Has the store remove the parts of an object that is not complete. They are left if it does
    /// not answer.
    fn drop(&mut self) {
        if let Some(parts) = &self.parts {
            let _ = self.remote.objects.abort_parts(&self.key, &parts.upload);
        }
    }
}
