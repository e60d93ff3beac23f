//! A store of objects in another process: requests over a socket, which that process answers from
//! its memory. What it has survives the end of those that ask.

use std::{
    io::{self, Read, Write},
    ops::Range,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use bytes::Bytes;
use outrigger_batch::{Failure, Listed, Objects, Patience, Put, Store};
use outrigger_tables::Stat;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A request. The content of an object follows it.
#[derive(Serialize, Deserialize)]
enum Request {
    Put { key: String, is_new: bool, tag: Option<String> },
    Get { key: String, range: Option<Range<u64>> },
    GetTagged { key: String },
    Stat { key: String },
    List { prefix: String },
    ListAll { prefix: String },
    Remove { key: String },
    Begin { key: String },
    Part { key: String, upload: String, part: usize },
    Finish { key: String, upload: String, parts: Vec<String> },
    Abort { key: String, upload: String },
}

/// An answer. The content of an object follows it.
#[derive(Default, Serialize, Deserialize)]
struct Reply {
    fault: Option<Fault>,
    size: u64,
    names: Vec<String>,
    directories: Vec<String>,
}

/// The failures that a store in memory has.
#[derive(Serialize, Deserialize)]
enum Fault {
    Absent,
    Exists,
    Changed,
}

/// Answers requests at a socket from `objects` for as long as this process lives.
pub(crate) fn serve(objects: impl Objects + Clone + 'static, socket: &Path) {
    let listener = UnixListener::bind(socket).expect("a socket");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, objects) = (stream.expect("a connection"), objects.clone());
            // A caller that was killed has sent a part of its request, or does not read the answer.
            thread::spawn(move || converse(stream, &objects).ok());
        }
    });
}

/// The objects below `prefix` in the process that serves them at `socket`.
pub(crate) fn store(socket: &Path, prefix: &str) -> Store {
    Store::in_objects(Arc::new(Served(socket.to_owned())), prefix, Patience::default())
}

fn converse(mut stream: UnixStream, objects: &impl Objects) -> io::Result<()> {
    let request = receive(&mut stream)?;
    let content = receive_bytes(&mut stream)?.into();
    let (reply, content) = answer(objects, request, &content).unwrap_or_else(|failure| {
        let fault = match failure {
            Failure::Absent => Fault::Absent,
            Failure::Exists => Fault::Exists,
            Failure::Changed => Fault::Changed,
            other => panic!("{other}"),
        };
        (Reply { fault: Some(fault), ..Reply::default() }, Bytes::new())
    });
    send(&mut stream, &reply, &content)
}

fn answer(
    objects: &impl Objects,
    request: Request,
    content: &Bytes,
) -> Result<(Reply, Bytes), Failure> {
    let mut reply = Reply::default();
    match request {
        Request::Put { key, is_new, tag } => {
            let other = if is_new { Put::New } else { Put::Replace };
            objects.put(&key, content, tag.as_deref().map_or(other, Put::Matching))?;
        }
        Request::GetTagged { key } => {
            let (content, tag) = objects.get_tagged(&key)?;
            reply.names.extend(tag);
            return Ok((reply, content));
        }
        Request::Get { key, range } => return Ok((reply, objects.get(&key, range, None)?)),
        Request::Stat { key } => reply.size = objects.stat(&key)?.size,
        Request::List { prefix } => {
            Listed { names: reply.names, directories: reply.directories } =
                objects.list(&prefix)?;
        }
        Request::ListAll { prefix } => reply.names = objects.list_all(&prefix)?,
        Request::Remove { key } => objects.remove(&key)?,
        Request::Begin { key } => reply.names = vec![objects.begin_parts(&key)?],
        Request::Part { key, upload, part } => {
            reply.names = vec![objects.put_part(&key, &upload, part, content)?];
        }
        Request::Finish { key, upload, parts } => objects.finish_parts(&key, &upload, &parts)?,
        Request::Abort { key, upload } => objects.abort_parts(&key, &upload)?,
    }
    Ok((reply, Bytes::new()))
}

/// The store for those that ask: each request has a connection of its own.
#[derive(Debug)]
struct Served(PathBuf);

impl Served {
    fn ask(&self, request: &Request, content: &[u8]) -> Result<(Reply, Bytes), Failure> {
        let conversation = || {
            let mut stream = UnixStream::connect(&self.0)?;
            send(&mut stream, request, content)?;
            let reply = receive::<Reply>(&mut stream)?;
            io::Result::Ok((reply, receive_bytes(&mut stream)?.into()))
        };
        let (reply, content) = conversation().map_err(|error| Failure::Away(error.to_string()))?;
        match reply.fault {
            None => Ok((reply, content)),
            Some(Fault::Absent) => Err(Failure::Absent),
            Some(Fault::Exists) => Err(Failure::Exists),
            Some(Fault::Changed) => Err(Failure::Changed),
        }
    }

    fn ask_alone(&self, request: &Request) -> Result<Reply, Failure> {
        self.ask(request, &[]).map(|(reply, _)| reply)
    }
}

impl Objects for Served {
    fn put(&self, key: &str, content: &Bytes, put: Put<'_>) -> Result<(), Failure> {
        let tag = match put {
            Put::Matching(tag) => Some(tag.to_owned()),
            Put::New | Put::Replace => None,
        };
        let request = Request::Put { key: key.to_owned(), is_new: put == Put::New, tag };
        self.ask(&request, content).map(drop)
    }

    fn get(&self, key: &str, range: Option<Range<u64>>, _: Option<&str>) -> Result<Bytes, Failure> {
        self.ask(&Request::Get { key: key.to_owned(), range }, &[]).map(|(_, content)| content)
    }

    fn get_tagged(&self, key: &str) -> Result<(Bytes, Option<String>), Failure> {
        let (mut reply, content) = self.ask(&Request::GetTagged { key: key.to_owned() }, &[])?;
        Ok((content, reply.names.pop()))
    }

    fn stat(&self, key: &str) -> Result<Stat, Failure> {
        let reply = self.ask_alone(&Request::Stat { key: key.to_owned() })?;
        Ok(Stat { size: reply.size, modified: 0, tag: None })
    }

    fn list(&self, prefix: &str) -> Result<Listed, Failure> {
        let reply = self.ask_alone(&Request::List { prefix: prefix.to_owned() })?;
        Ok(Listed { names: reply.names, directories: reply.directories })
    }

    fn list_all(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        self.ask_alone(&Request::ListAll { prefix: prefix.to_owned() }).map(|reply| reply.names)
    }

    fn remove(&self, key: &str) -> Result<(), Failure> {
        self.ask_alone(&Request::Remove { key: key.to_owned() }).map(drop)
    }

    fn begin_parts(&self, key: &str) -> Result<String, Failure> {
        self.ask_alone(&Request::Begin { key: key.to_owned() }).map(|reply| reply.names.concat())
    }

    fn put_part(
        &self,
        key: &str,
        upload: &str,
        part: usize,
        content: &Bytes,
    ) -> Result<String, Failure> {
        let request = Request::Part { key: key.to_owned(), upload: upload.to_owned(), part };
        self.ask(&request, content).map(|(reply, _)| reply.names.concat())
    }

    fn finish_parts(&self, key: &str, upload: &str, parts: &[String]) -> Result<(), Failure> {
        let (key, upload) = (key.to_owned(), upload.to_owned());
        self.ask_alone(&Request::Finish { key, upload, parts: parts.to_vec() }).map(drop)
    }

    fn abort_parts(&self, key: &str, upload: &str) -> Result<(), Failure> {
        let request = Request::Abort { key: key.to_owned(), upload: upload.to_owned() };
        self.ask_alone(&request).map(drop)
    }
}

/// Sends a document and the content that follows it, each with its length before it.
fn send(stream: &mut UnixStream, document: &impl Serialize, content: &[u8]) -> io::Result<()> {
    let json = serde_json::to_vec(document)?;
    for bytes in [&json, content] {
        stream.write_all(&(bytes.len() as u64).to_be_bytes())?;
        stream.write_all(bytes)?;
    }
    Ok(())
}

fn receive<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<T> {
    Ok(serde_json::from_slice(&receive_bytes(stream)?)?)
}

fn receive_bytes(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let mut bytes = vec![0; u64::from_be_bytes(length) as usize];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}
