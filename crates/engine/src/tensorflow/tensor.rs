//! `TF_Tensor` as an owned, immutable value.

use std::{fmt, marker::PhantomData, ptr::NonNull, slice};

use bytes::Bytes;

use super::{
    api::{TfString, TfTensor},
    dtype::DType,
    runtime::Runtime,
    strings,
};

/// A tensor. It is immutable, so threads can share it.
pub struct Tensor {
    runtime: Runtime,
    raw: NonNull<TfTensor>,
}

// SAFETY: the library counts references to the buffer atomically, and this type does not
// change a tensor after its construction.
unsafe impl Send for Tensor {}
// SAFETY: as above; all methods on `&Tensor` only read.
unsafe impl Sync for Tensor {}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("dtype", &self.dtype())
            .field("dims", &self.dims())
            .finish_non_exhaustive()
    }
}

impl Tensor {
    /// A tensor of plain bytes in a buffer that the library allocates and `fill` writes.
    /// Bytes that `fill` does not write are zero. `None` if the type is not plain, the
    /// size overflows or memory is short.
    pub fn plain(
        runtime: Runtime,
        dtype: DType,
        dims: &[i64],
        fill: impl FnOnce(&mut TensorWriter<'_>),
    ) -> Option<Self> {
        let bytes = elements(dims)?.checked_mul(dtype.size()?)?;
        let rank = dims.len().try_into().ok()?;
        // SAFETY: `dims` is valid for `rank` numbers; the result is owned.
        let raw = unsafe { (runtime.api.allocate_tensor)(dtype.0, dims.as_ptr(), rank, bytes) };
        let tensor = Self { runtime, raw: NonNull::new(raw)? };
        let start = tensor.data();
        if start.is_null() && bytes > 0 {
            return None;
        }
        // SAFETY: the library allocated `bytes` bytes at `start`, and nothing else has a
        // pointer to them yet.
        let mut writer = unsafe { TensorWriter::new(start, bytes) };
        fill(&mut writer);
        writer.fill(&[0]);
        Some(tensor)
    }

    /// A tensor of strings. Missing values repeat the last one (or are empty), extra ones
    /// are dropped. `None` if the size overflows or memory is short.
    pub fn strings<'a>(
        runtime: Runtime,
        dims: &[i64],
        values: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Self> {
        let count = elements(dims)?;
        count.checked_mul(size_of::<TfString>()).filter(|&bytes| bytes <= isize::MAX as usize)?;
        let rank = dims.len().try_into().ok()?;
        let block = strings::block(runtime, count, values);
        // SAFETY: `dims` is valid for `rank` numbers; the block holds exactly the strings
        // of that shape, and ownership passes with `free`. For strings the library uses
        // the block itself, never a copy.
        let raw = unsafe {
            (runtime.api.new_tensor)(
                DType::STRING.0,
                dims.as_ptr(),
                rank,
                block.data,
                block.bytes,
                strings::free,
                block.owner,
            )
        };
        Some(Self { runtime, raw: NonNull::new(raw)? })
    }

    /// Takes ownership of a tensor that the library has created.
    ///
    /// # Safety
    /// `raw` must be a tensor that no other code deletes or changes.
    pub(super) unsafe fn from_raw(runtime: Runtime, raw: *mut TfTensor) -> Option<Self> {
        Some(Self { runtime, raw: NonNull::new(raw)? })
    }

    pub(super) fn as_ptr(&self) -> *mut TfTensor {
        self.raw.as_ptr()
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        // SAFETY: `raw` is valid until drop.
        DType(unsafe { (self.runtime.api.tensor_type)(self.as_ptr()) })
    }

    /// The shape, outermost dimension first.
    pub fn dims(&self) -> Vec<i64> {
        // SAFETY: `raw` is valid until drop.
        let rank = unsafe { (self.runtime.api.tensor_rank)(self.as_ptr()) };
        // SAFETY: as above, and the index is below the rank.
        (0..rank)
            .map(|index| unsafe { (self.runtime.api.tensor_dim)(self.as_ptr(), index) })
            .collect()
    }

    /// The bytes of a tensor of a plain type, row-major in the machine's byte order;
    /// empty for other types.
    pub fn bytes(&self) -> &[u8] {
        let data = self.data();
        if self.dtype().size().is_none() || data.is_null() {
            return &[];
        }
        // SAFETY: the buffer has this length, lives as long as the tensor, and is not
        // written to while the tensor exists.
        unsafe {
            let length = (self.runtime.api.tensor_bytes)(self.as_ptr());
            slice::from_raw_parts(data, length)
        }
    }

    /// The bytes of a tensor of a plain type, without a copy.
    pub fn into_bytes(self) -> Bytes {
        struct Owner(Tensor);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                self.0.bytes()
            }
        }
        Bytes::from_owner(Owner(self))
    }

    /// The elements of a tensor of strings; empty for other types.
    pub fn iter_strings(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let data = self.data().cast::<TfString>();
        let plain = self.dtype() != DType::STRING || data.is_null();
        // SAFETY: `raw` is valid until drop.
        let count = unsafe { (self.runtime.api.tensor_elements)(self.as_ptr()) };
        let count = if plain { 0 } else { usize::try_from(count).unwrap_or(0) };
        // SAFETY: a string tensor's buffer holds `count` initialised strings, which stay
        // valid and unchanged as long as the tensor.
        (0..count).map(move |index| unsafe { strings::bytes(self.runtime.api, data.add(index)) })
    }

    fn data(&self) -> *mut u8 {
        // SAFETY: `raw` is valid until drop.
        unsafe { (self.runtime.api.tensor_data)(self.as_ptr()).cast() }
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: `raw` is owned, and deleted once.
        unsafe { (self.runtime.api.delete_tensor)(self.as_ptr()) }
    }
}

/// The number of elements of a shape; `None` if a size is negative or the product
/// overflows.
fn elements(dims: &[i64]) -> Option<usize> {
    dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(usize::try_from(dim).ok()?))
}

/// Writes a new tensor's bytes from front to back. Bytes beyond the end are dropped.
#[derive(Debug)]
pub struct TensorWriter<'a> {
    next: *mut u8,
    left: usize,
    /// Makes the lifetime invariant, so that a writer cannot be swapped with another
    /// tensor's.
    buffer: PhantomData<&'a mut &'a mut [u8]>,
}

impl TensorWriter<'_> {
    /// # Safety
    /// `start` must be valid for writes of `bytes` bytes as long as the writer lives, and
    /// no other pointer to them may be used.
    unsafe fn new(start: *mut u8, bytes: usize) -> Self {
        Self { next: start, left: bytes, buffer: PhantomData }
    }

    /// Number of bytes that can still be written.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Copies `bytes`, as far as they fit.
    pub fn put(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(self.left);
        if count == 0 {
            return;
        }
        // SAFETY: `next` is valid for `left` bytes, at least `count`; the slice cannot
        // overlap memory to which only this writer has a pointer.
        unsafe {
            self.next.copy_from_nonoverlapping(bytes.as_ptr(), count);
            self.next = self.next.add(count);
        }
        self.left -= count;
    }

    /// Repeats `element` to the end.
    pub fn fill(&mut self, element: &[u8]) {
        if element.iter().all(|&byte| byte == 0) && self.left > 0 {
            // SAFETY: `next` is valid for `left` bytes.
            unsafe { self.next.write_bytes(0, self.left) };
            self.left = 0;
        }
        while self.left > 0 {
            self.put(element);
        }
    }
}
