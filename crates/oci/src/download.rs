//! Downloads a blob from a registry into a file.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Response, StatusCode, header::CONTENT_RANGE};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    Error, Layer, blocking::blocking, config::Timeouts, partial::Partial, registry::Remote,
    retry::Backoff,
};

/// Pieces queued between network and disk; a piece is the result of one network read.
const QUEUE: usize = 8;

/// Downloads `layer` into its partial file, with retries. The file is removed if it cannot become
/// the blob, and kept for a later attempt otherwise.
pub(crate) async fn download(
    remote: &Remote<'_>,
    layer: &Layer,
    mut partial: Partial,
) -> Result<(), Error> {
    let mut backoff = Backoff::new(&remote.config.retries);
    let mut ranges = true;
    loop {
        if partial.is_complete() {
            let (kept, finished) = finish(partial).await?;
            match finished {
                Ok(()) => return Ok(()),
                // The bytes from an earlier run were wrong: start again without them.
                Err(Error::DigestMismatch { .. }) if kept.has_leftover() => {
                    partial = restart(kept).await?;
                    continue;
                }
                Err(error) => return remove(kept, error).await,
            }
        }
        let (kept, result) = attempt(remote, layer, partial, &mut ranges).await?;
        partial = kept;
        match result {
            Ok(()) => {}
            Err(error @ Error::SizeMismatch { .. }) => return remove(partial, error).await,
            Err(error) => match backoff.wait(error).await {
                Ok(()) => {}
                // An empty file saves the next attempt nothing.
                Err(error) if partial.position() == 0 => return remove(partial, error).await,
                Err(error) => return Err(error),
            },
        }
    }
}

type Kept = (Partial, Result<(), Error>);

/// One transfer. The outer error means that the partial file itself is lost.
async fn attempt(
    remote: &Remote<'_>,
    layer: &Layer,
    mut partial: Partial,
    ranges: &mut bool,
) -> Result<Kept, Error> {
    if !*ranges {
        partial = restart(partial).await?;
    }
    let offset = partial.position();
    let response = match remote.blob(layer.digest, offset).await {
        Ok(response) => response,
        Err(error) => return Ok((partial, Err(error))),
    };
    match response.status() {
        StatusCode::PARTIAL_CONTENT if starts_at(&response, offset) => {}
        StatusCode::OK => partial = restart(partial).await?,
        // Status 416, or a range that was not asked for: start again without a range.
        _ if offset > 0 => {
            *ranges = false;
            return Ok((partial, Ok(())));
        }
        status => return Ok((partial, Err(remote.unexpected(status)))),
    }
    let end = response.content_length().map(|length| partial.position().saturating_add(length));
    if let Some(end) = end.filter(|end| *end != layer.size) {
        let error = partial.wrong_size(end);
        return Ok((partial, Err(error)));
    }
    receive(remote, partial, response).await
}

fn starts_at(response: &Response, offset: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    let start = range.and_then(|text| text.trim().strip_prefix("bytes ")?.split('-').next());
    start.is_some_and(|start| start.parse() == Ok(offset))
}

/// Streams the response to a blocking thread that hashes and writes it. When this future is
/// dropped, the thread ends after the pieces already queued.
async fn receive(remote: &Remote<'_>, partial: Partial, response: Response) -> Result<Kept, Error> {
    let (pieces, queue) = mpsc::channel(QUEUE);
    let read = feed(remote, response, pieces);
    let (read, written) = tokio::join!(read, blocking(move || Ok(drain(partial, queue))));
    let (partial, written) = written?;
    let complete = partial.is_complete();
    let result = written.and(read).and_then(|()| {
        let early = || Error::unavailable(remote.host(), "a blob ended before its end");
        if complete { Ok(()) } else { Err(early()) }
    });
    Ok((partial, result))
}

async fn feed(
    remote: &Remote<'_>,
    mut response: Response,
    pieces: mpsc::Sender<Bytes>,
) -> Result<(), Error> {
    let mut pace = Pace::new(&remote.config.timeouts);
    loop {
        let asked = Instant::now();
        let piece = remote.transport.plain.chunk(remote.host(), &mut response).await?;
        let Some(piece) = piece else { break };
        let (received, waited) = (piece.len() as u64, asked.elapsed());
        if pieces.send(piece).await.is_err() {
            // The writer has failed; its own result holds the error.
            break;
        }
        pace.received(remote.host(), received, waited)?;
    }
    Ok(())
}

/// Checks that a registry sends the bytes of a layer fast enough. Only the time that is spent
/// waiting for the registry counts: a slow disk is not its fault.
struct Pace {
    least: u64,
    window: Duration,
    received: u64,
    waited: Duration,
}

impl Pace {
    fn new(timeouts: &Timeouts) -> Self {
        let (least, window) = (timeouts.least, timeouts.idle);
        Self { least, window, received: 0, waited: Duration::ZERO }
    }

    fn received(&mut self, registry: &str, bytes: u64, waited: Duration) -> Result<(), Error> {
        self.received += bytes;
        self.waited += waited;
        if self.waited < self.window {
            return Ok(());
        }
        let (received, within, least) = (self.received, self.waited, self.least);
        (self.received, self.waited) = (0, Duration::ZERO);
        if received >= least {
            return Ok(());
        }
        Err(Error::TooSlow { registry: registry.to_owned(), received, within, least })
    }
}

fn drain(mut partial: Partial, mut queue: mpsc::Receiver<Bytes>) -> Kept {
    while let Some(piece) = queue.blocking_recv() {
        if let Err(error) = partial.write(&piece) {
            return (partial, Err(error));
        }
    }
    (partial, Ok(()))
}

async fn finish(mut partial: Partial) -> Result<Kept, Error> {
    blocking(move || {
        let result = partial.finish();
        Ok((partial, result))
    })
    .await
}

async fn restart(mut partial: Partial) -> Result<Partial, Error> {
    blocking(move || partial.restart().map(|()| partial)).await
}

async fn remove(partial: Partial, error: Error) -> Result<(), Error> {
    blocking(move || {
        partial.remove();
        Err(error)
    })
    .await
}
