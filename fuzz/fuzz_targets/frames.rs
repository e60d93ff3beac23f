//! Recorded bytes of clients, in pieces whose lengths are the input: h2 behind the reader of the server
//! does what h2 alone does.
#![no_main]

// Each target uses a part of what is shared.
#![allow(dead_code)]

#[path = "../../crates/server/src/listen/ahead.rs"]
mod ahead;
#[path = "../../crates/server/src/listen/bodies.rs"]
mod bodies;
#[path = "../../crates/server/src/listen/frames.rs"]
mod frames;
#[path = "../../crates/server/src/listen/replay.rs"]
mod replay;
#[path = "../../crates/server/src/listen/unread.rs"]
mod unread;
#[path = "../../crates/server/src/listen/windows.rs"]
mod windows;

use std::sync::{Arc, LazyLock};

use bytes::BytesMut;
use outrigger_budget::Budget;
use tokio::runtime::{Builder, Runtime};

use self::{
    ahead::Ahead,
    bodies::Bodies,
    frames::Frames,
    replay::{Outcome, alone, replay},
    unread::Unread,
};

const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;

/// The unsent answers of a connection, of which there are none here.
mod sending {
    #[derive(Debug, Default)]
    pub(crate) struct Unsent;

    impl Unsent {
        pub(crate) fn is_empty(&self) -> bool {
            true
        }
    }
}

const RECORDED: [&[u8]; 5] = [
    include_bytes!("../../crates/server/src/listen/recorded/go.h2"),
    include_bytes!("../../crates/server/src/listen/recorded/java.h2"),
    include_bytes!("../../crates/server/src/listen/recorded/node.h2"),
    include_bytes!("../../crates/server/src/listen/recorded/python.h2"),
    include_bytes!("../../crates/server/src/listen/recorded/tonic.h2"),
];

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("a runtime")
}

/// Replays a stream, through what the server reads with or not.
fn outcome(pieces: &[&[u8]], is_ours: bool) -> Outcome {
    let builder = h2::server::Builder::new();
    runtime().block_on(async {
        match is_ours {
            true => {
                let pool = Unread::new(Budget::new(1 << 30).unread.clone());
                let bodies = Arc::new(Bodies::new(&pool, &Arc::default()));
                let ours = |stream, requests| async move {
                    let stream = Frames::new(Ahead::new(stream, BytesMut::new(), bodies));
                    alone(stream, builder, requests).await;
                };
                replay(pieces, ours).await
            }
            false => replay(pieces, |stream, requests| alone(stream, builder, requests)).await,
        }
    })
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    static EXPECTED: LazyLock<Vec<Outcome>> =
        LazyLock::new(|| RECORDED.iter().map(|sent| outcome(&[sent], false)).collect());
    let Some((first, lengths)) = input.split_first() else { return };
    let number = usize::from(*first) % RECORDED.len();
    let (mut rest, mut pieces) = (RECORDED[number], Vec::new());
    for length in lengths {
        let (piece, more) = rest.split_at(rest.len().min(1 + usize::from(*length)));
        pieces.push(piece);
        rest = more;
    }
    pieces.push(rest);
    assert_eq!(outcome(&pieces, true), EXPECTED[number], "stream {number}");
});
