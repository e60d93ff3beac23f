//! Entry to the reader of archives, for the fuzz targets.

use std::{
    io::Write as _,
    os::fd::{AsRawFd as _, OwnedFd},
    path::PathBuf,
};

use bytesize::ByteSize;
use outrigger_core::{Digest, LayerKind};
use rustix::fs::{MemfdFlags, memfd_create};

use super::{
    archive::Archive,
    source::{Budget, Source},
};
use crate::Result;

/// The most decompressed bytes of a layer.
const MOST: ByteSize = ByteSize::mib(8);

/// Reads all entries of a layer with their content. Nothing is written to disk.
///
/// # Panics
/// An entry has more content than its header states, or a limit does not hold.
pub fn layer(bytes: &[u8], kind: LayerKind) {
    let digest = Digest::of(bytes);
    let file = memfd_create("layer", MemfdFlags::CLOEXEC).expect("memory for a file");
    let mut file = std::fs::File::from(file);
    file.write_all(bytes).expect("memory for a file");
    let file = OwnedFd::from(file);
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let mut budget = Budget { max: MOST, used: 0 };
    let _read_or_refused = read(path, (digest, kind), &mut budget);
    // The last block that was read may be beyond the limit.
    assert!(budget.used <= MOST.as_u64() + (64 << 10));
}

fn read(path: PathBuf, layer: (Digest, LayerKind), budget: &mut Budget) -> Result<()> {
    let mut archive = Archive::new(Source::open(path, layer, budget)?);
    let mut buffer = [0; 4096];
    while let Some(entry) = archive.next()? {
        let mut left = entry.size;
        loop {
            let count = archive.read(&mut buffer)? as u64;
            left = left.checked_sub(count).expect("no more than the header states");
            if count == 0 {
                break;
            }
        }
        assert_eq!(left, 0, "an entry ended before its size");
    }
    archive.finish()
}
