//! Ctrl-C during a run.

use std::{process, thread};

use outrigger_bench::Stop;
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

use crate::exit::{Exit, INTERRUPTED};

/// The first one ends what is measured, a second one the process.
pub(super) fn heed(stop: Stop) -> Result<(), Exit> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Exit::failed)?;
    let entered = runtime.enter();
    let mut interrupts = signal(SignalKind::interrupt()).map_err(Exit::failed)?;
    drop(entered);
    thread::spawn(move || {
        runtime.block_on(interrupts.recv());
        stop.stop();
        runtime.block_on(interrupts.recv());
        process::exit(INTERRUPTED.into());
    });
    Ok(())
}
