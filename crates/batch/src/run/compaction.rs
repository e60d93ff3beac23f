//! The compaction of a job with several workers: one of them makes it.

use std::{
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use tokio::time::sleep;

use super::blocking;
use crate::{
    Error, Watch,
    compact::compact,
    job::Compaction,
    lease::{Leases, RENEWAL},
    store::Store,
};

/// The pause before the lease of another worker is looked at again.
const ELSEWHERE: Duration = Duration::from_secs(1);

/// Makes the compaction of the finished job in `store`, or waits until another worker has made it. A
/// worker that is killed loses its `lease`, and another one goes on.
///
/// # Errors
/// The compaction cannot be made, or the wait was interrupted.
pub(super) async fn compact_once(
    store: Store,
    Compaction { to, file_size }: Compaction,
    (lease, watch): (u64, &Watch),
) -> Result<(), Error> {
    let name = format!("{:08x}", rand::random::<u32>());
    let leases = Arc::new(Leases::new(store.clone(), &name));
    loop {
        let claiming = Arc::clone(&leases);
        if blocking(move || claiming.claim(lease)).await? {
            break;
        }
        tokio::select! {
            () = sleep(ELSEWHERE) => {}
            () = watch.interrupted() => return Err(Error::Interrupted),
        }
    }
    blocking(move || {
        let compacted = with_renewal(&leases, || compact(&store, &Store::at(&to)?, file_size.0));
        leases.release(lease)?;
        compacted.map(|_| ())
    })
    .await
}

/// Renews the leases as long as the work takes. Blocks.
fn with_renewal<T>(leases: &Leases, work: impl FnOnce() -> T) -> T {
    let (working, ended) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while ended.recv_timeout(RENEWAL) == Err(RecvTimeoutError::Timeout) {
                // A lease that expires costs repeated work.
                let _ = leases.renew();
            }
        });
        let result = work();
        drop(working);
        result
    })
}
