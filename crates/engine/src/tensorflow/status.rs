//! `TF_Status` as a guard.

use std::{ffi::CStr, ptr::NonNull};

use super::api::{Api, TfStatus};
use crate::status::Status;

/// A status the library writes its outcome into.
pub(super) struct Outcome {
    api: &'static Api,
    raw: NonNull<TfStatus>,
}

impl Outcome {
    pub(super) fn new(api: &'static Api) -> Self {
        // SAFETY: takes nothing; the result is ours until deleted in drop.
        let raw = unsafe { (api.new_status)() };
        Self { api, raw: NonNull::new(raw).expect("TF_NewStatus allocates with operator new") }
    }

    /// For a call that writes its outcome.
    pub(super) fn as_ptr(&self) -> *mut TfStatus {
        self.raw.as_ptr()
    }

    /// What the last call wrote.
    pub(super) fn into_result(self) -> Result<(), Status> {
        // SAFETY: `raw` is alive until drop, and nobody else has it.
        let code = unsafe { (self.api.code)(self.raw.as_ptr()) };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: as above; the message lives until the status changes.
        let message = unsafe { CStr::from_ptr((self.api.message)(self.raw.as_ptr())) };
        Err(Status::new(tonic::Code::from_i32(code), message.to_string_lossy()))
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        // SAFETY: made by `new_status`, deleted once.
        unsafe { (self.api.delete_status)(self.raw.as_ptr()) }
    }
}
