//! Blocks of `TF_TString` that belong to a tensor.

use std::{ffi::c_void, slice};

use super::{
    api::{Api, TfString},
    runtime::Runtime,
};

/// The strings of one tensor; freed when TensorFlow releases the last reference.
///
/// `TF_AllocateTensor` would free the block but not the heap memory of long strings, so
/// string tensors get their own block with this type as its owner.
struct Block {
    api: &'static Api,
    strings: Box<[TfString]>,
}

impl Drop for Block {
    fn drop(&mut self) {
        for string in &mut self.strings {
            // SAFETY: `block` has initialised every element.
            unsafe { (self.api.string_dealloc)(string) }
        }
    }
}

/// A block of strings as arguments of `TF_NewTensor`.
pub(super) struct RawBlock {
    pub(super) data: *mut c_void,
    pub(super) bytes: usize,
    pub(super) owner: *mut c_void,
}

/// Copies `values` into a block of exactly `count` strings; missing ones repeat the last
/// value, extra ones are dropped.
///
/// The block must be passed to [`free`] exactly once.
pub(super) fn block<'a>(
    runtime: Runtime,
    count: usize,
    values: impl Iterator<Item = &'a [u8]>,
) -> RawBlock {
    let api = runtime.api;
    let mut last: &[u8] = &[];
    let mut values = values;
    let strings = (0..count).map(|_| {
        last = values.next().unwrap_or(last);
        string(api, last)
    });
    let mut owner = Box::new(Block { api, strings: strings.collect() });
    RawBlock {
        data: owner.strings.as_mut_ptr().cast(),
        bytes: size_of_val(&*owner.strings),
        owner: Box::into_raw(owner).cast(),
    }
}

/// A string with a copy of `value`. Moving it is sound: the library's own containers move
/// strings by copying their 24 bytes.
fn string(api: &'static Api, value: &[u8]) -> TfString {
    let mut string = std::mem::MaybeUninit::uninit();
    // SAFETY: `string_init` writes all 24 bytes of the string; `string_copy` reads
    // `value.len()` bytes of `value`, which is alive.
    unsafe {
        (api.string_init)(string.as_mut_ptr());
        (api.string_copy)(string.as_mut_ptr(), value.as_ptr().cast(), value.len());
        string.assume_init()
    }
}

/// The deallocator of tensors made from a [`RawBlock`].
///
/// # Safety
/// `owner` must be that of a [`RawBlock`], and must not be used again.
pub(super) unsafe extern "C" fn free(_data: *mut c_void, _bytes: usize, owner: *mut c_void) {
    // SAFETY: `owner` comes from `Box::into_raw` in `block`, and the caller guarantees
    // that this is its only use.
    drop(unsafe { Box::from_raw(owner.cast::<Block>()) });
}

/// The bytes of a string.
///
/// # Safety
/// `string` must be initialised, and neither changed nor freed during `'a`.
pub(super) unsafe fn bytes<'a>(api: &'static Api, string: *const TfString) -> &'a [u8] {
    // SAFETY: the caller guarantees that the string is valid; its data pointer is valid
    // for its size, and not null even if that is zero.
    unsafe {
        let size = (api.string_size)(string);
        slice::from_raw_parts((api.string_data)(string).cast(), size)
    }
}
