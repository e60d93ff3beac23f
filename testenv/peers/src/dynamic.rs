//! Libraries that are loaded at run time, so that any version can be a peer.

use libloading::Symbol;

use crate::Result;

/// Opens a library of XGBoost or LightGBM. It is never closed: its threads may still run.
pub(crate) fn open(path: &str) -> Result<&'static libloading::Library> {
    // SAFETY: the initialisers of these libraries have no requirements.
    let library = unsafe { libloading::Library::new(path) }?;
    Ok(Box::leak(Box::new(library)))
}

/// The function of this name.
///
/// # Safety
/// The function must have the type `T`, which must be a function pointer.
pub(crate) unsafe fn function<T: Copy>(library: &libloading::Library, name: &str) -> Result<T> {
    // SAFETY: required of the caller.
    let symbol: Symbol<'_, T> = unsafe { library.get(name) }?;
    Ok(*symbol)
}
