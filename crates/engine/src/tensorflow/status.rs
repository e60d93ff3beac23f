//! Owns a `TF_Status`.

use std::{ffi::CStr, ptr::NonNull};

use super::api::{Api, TfStatus};
use crate::status::Status;

/// A status into which the library writes the outcome of a call.
pub(super) struct Outcome {
    api: &'static Api,
    raw: NonNull<TfStatus>,
}

impl Outcome {
    pub(super) fn new(api: &'static Api) -> Self {
        // SAFETY: the function has no arguments; the result is owned until it is deleted
        // in drop.
        let raw = unsafe { (api.new_status)() };
        Self { api, raw: NonNull::new(raw).expect("TF_NewStatus allocates with operator new") }
    }

    /// The pointer to pass to a call that writes its outcome.
    pub(super) fn as_ptr(&self) -> *mut TfStatus {
        self.raw.as_ptr()
    }

    /// The outcome of the last call.
    pub(super) fn into_result(self) -> Result<(), Status> {
        // SAFETY: `raw` is valid until drop, and nothing else has it.
        let code = unsafe { (self.api.code)(self.raw.as_ptr()) };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: as above; the message is valid until the status changes.
        let message = unsafe { CStr::from_ptr((self.api.message)(self.raw.as_ptr())) };
        Err(Status::new(tonic::Code::from_i32(code), message.to_string_lossy()))
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        // SAFETY: created by `new_status`, deleted once.
        unsafe { (self.api.delete_status)(self.raw.as_ptr()) }
    }
}
