//! A session: a SavedModel's graph and variables, ready to run.

use std::{
    ffi::{CString, c_int},
    fmt,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::{
    api::{Api, TfBuffer, TfGraph, TfOutput, TfSession, TfSessionOptions, TfTensor},
    run_options::{caller_run_options, run_options, session_config, traced_run_options},
    runtime::Runtime,
    status::Outcome,
    tensor::Tensor,
};
use crate::status::Status;

/// Sizes of TensorFlow's thread pools; zero means one thread per core. The pool for the parts of an
/// operation belongs to the process: the first session sets its size.
#[derive(Debug, Clone, Copy, Default)]
pub struct Threads {
    /// Threads per operation.
    pub intra_op: u32,
    /// Concurrent operations.
    pub inter_op: u32,
}

/// The threads that execute the operations of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executor {
    /// The calling thread, one operation after the other. No thread has to be woken,
    /// which would take longer than all operations of a small model.
    Caller,
    /// TensorFlow's threads, with concurrent operations where the graph permits it. The
    /// duration is the timeout that TensorFlow gets; a run may exceed it, because
    /// operations are not interrupted.
    Pool(Option<Duration>),
}

/// A tensor of one session's graph that can be fed or fetched. The order of endpoints has no
/// meaning, but does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    session: u64,
    output: TfOutput,
}

// SAFETY: the pointer names an operation of a graph; it is dereferenced only by
// `Session::run` of the session that owns that graph, which checks the session number.
unsafe impl Send for Endpoint {}
// SAFETY: as above.
unsafe impl Sync for Endpoint {}

/// A loaded SavedModel. Runs may overlap.
pub struct Session {
    runtime: Runtime,
    /// Unique within the process; identifies the session of an endpoint.
    number: u64,
    session: NonNull<TfSession>,
    graph: Graph,
}

// SAFETY: sessions and graphs lock internally; the C interface documents both as safe for
// concurrent use.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Session {
    /// Loads the SavedModel in `directory` (the meta graph with tag `serve`), and passes
    /// the encoded `tensorflow.MetaGraphDef` to `read`.
    ///
    /// # Errors
    /// TensorFlow's error. A model whose variables are missing loads without an error,
    /// and fails when it runs.
    pub fn load<T>(
        runtime: Runtime,
        directory: &Path,
        threads: Threads,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<(Self, T), Status> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let path = CString::new(directory.as_os_str().as_bytes())
            .map_err(|_| Status::invalid("the path of the model has a zero byte"))?;
        let options = Options::new(runtime.api, threads)?;
        let graph = Graph::new(runtime.api);
        let meta_graph = OwnedBuffer::new(runtime.api);
        let tags = [c"serve".as_ptr()];
        let outcome = Outcome::new(runtime.api);
        // SAFETY: all pointers are valid during the call; `tags` has one string; the
        // graph is new and empty, as the function requires.
        let session = unsafe {
            (runtime.api.load_session)(
                options.raw.as_ptr(),
                ptr::null(),
                path.as_ptr(),
                tags.as_ptr(),
                1,
                graph.raw.as_ptr(),
                meta_graph.raw.as_ptr(),
                outcome.as_ptr(),
            )
        };
        outcome.into_result()?;
        let session = NonNull::new(session).expect("a good outcome comes with a session");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok((Self { runtime, number, session, graph }, read(meta_graph.bytes())))
    }

    /// The tensor of this name: `operation:index`, or `operation` for its first output.
    /// `None` if the graph does not have it.
    pub fn endpoint(&self, name: &str) -> Option<Endpoint> {
        let (operation, index) = name.rsplit_once(':').unwrap_or((name, "0"));
        let index = index.parse::<c_int>().ok()?;
        let operation = CString::new(operation).ok()?;
        let api = self.runtime.api;
        // SAFETY: graph and name are valid; the result belongs to the graph.
        let operation =
            unsafe { (api.operation_by_name)(self.graph.raw.as_ptr(), operation.as_ptr()) };
        if operation.is_null() {
            return None;
        }
        // SAFETY: the operation belongs to the graph, which is alive.
        let outputs = unsafe { (api.operation_outputs)(operation) };
        let output = TfOutput { operation, index };
        (0..outputs).contains(&index).then_some(Endpoint { session: self.number, output })
    }

    /// Runs the graph.
    ///
    /// # Errors
    /// TensorFlow's error.
    ///
    /// # Panics
    /// An endpoint belongs to another session.
    pub fn run(
        &self,
        inputs: &[(Endpoint, Tensor)],
        outputs: &[Endpoint],
        executor: Executor,
    ) -> Result<Vec<Tensor>, Status> {
        let options = match executor {
            Executor::Caller => Some(caller_run_options()),
            Executor::Pool(timeout) => timeout.map(|timeout| run_options(milliseconds(timeout))),
        };
        self.execute(inputs, outputs, options.as_deref(), None)
    }

    /// Runs the graph on the calling thread, and traces every operation. Returns the outputs, and
    /// the encoded `tensorflow.RunMetadata` with the trace in `step_stats`.
    ///
    /// # Errors
    /// TensorFlow's error.
    ///
    /// # Panics
    /// An endpoint belongs to another session.
    pub fn run_traced(
        &self,
        inputs: &[(Endpoint, Tensor)],
        outputs: &[Endpoint],
    ) -> Result<(Vec<Tensor>, Vec<u8>), Status> {
        let metadata = OwnedBuffer::new(self.runtime.api);
        let options = traced_run_options();
        let tensors = self.execute(inputs, outputs, Some(&options), Some(&metadata))?;
        Ok((tensors, metadata.bytes().to_vec()))
    }

    fn execute(
        &self,
        inputs: &[(Endpoint, Tensor)],
        outputs: &[Endpoint],
        options: Option<&[u8]>,
        metadata: Option<&OwnedBuffer>,
    ) -> Result<Vec<Tensor>, Status> {
        let feeds: Vec<_> = inputs.iter().map(|(endpoint, _)| self.checked(endpoint)).collect();
        let values: Vec<*mut TfTensor> = inputs.iter().map(|(_, tensor)| tensor.as_ptr()).collect();
        let fetches: Vec<_> = outputs.iter().map(|endpoint| self.checked(endpoint)).collect();
        let mut results: Vec<*mut TfTensor> = vec![ptr::null_mut(); outputs.len()];
        let options = options.map(borrowed);
        let metadata = metadata.map_or(ptr::null_mut(), |buffer| buffer.raw.as_ptr());
        let outcome = Outcome::new(self.runtime.api);
        // SAFETY: each pointer is valid for the count beside it and during the call; the
        // endpoints belong to this graph; the inputs are only read; the buffer for metadata is
        // empty, as the function requires, and only this call uses it.
        unsafe {
            (self.runtime.api.run)(
                self.session.as_ptr(),
                options.as_ref().map_or(ptr::null(), ptr::from_ref),
                feeds.as_ptr(),
                values.as_ptr(),
                count(feeds.len()),
                fetches.as_ptr(),
                results.as_mut_ptr(),
                count(fetches.len()),
                ptr::null(),
                0,
                metadata,
                outcome.as_ptr(),
            );
        }
        outcome.into_result()?;
        // SAFETY: after a good outcome every result is a tensor that the caller must
        // delete.
        let tensors = results.into_iter().map(|raw| unsafe { Tensor::from_raw(self.runtime, raw) });
        Ok(tensors.map(|tensor| tensor.expect("a good run sets every result")).collect())
    }

    fn checked(&self, endpoint: &Endpoint) -> TfOutput {
        assert_eq!(endpoint.session, self.number, "an endpoint is used with its own session");
        endpoint.output
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let (close, delete) = (Outcome::new(self.runtime.api), Outcome::new(self.runtime.api));
        // SAFETY: this owns the session, which has no run left, since runs borrow it; it
        // is deleted once, before its graph.
        unsafe {
            (self.runtime.api.close_session)(self.session.as_ptr(), close.as_ptr());
            (self.runtime.api.delete_session)(self.session.as_ptr(), delete.as_ptr());
        }
    }
}

/// Milliseconds, at least one, because zero means no limit.
fn milliseconds(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).clamp(1, i64::MAX as u64)
}

fn count(length: usize) -> c_int {
    length.try_into().expect("a signature has fewer than 2^31 tensors")
}

/// A buffer that the library only reads.
fn borrowed(bytes: &[u8]) -> TfBuffer {
    TfBuffer { data: bytes.as_ptr().cast(), length: bytes.len(), deallocator: None }
}

struct Graph {
    api: &'static Api,
    raw: NonNull<TfGraph>,
}

impl Graph {
    fn new(api: &'static Api) -> Self {
        // SAFETY: the function has no arguments; the result is owned until it is deleted
        // in drop.
        let raw = unsafe { (api.new_graph)() };
        Self { api, raw: NonNull::new(raw).expect("TF_NewGraph allocates with operator new") }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: owned, and deleted once; the library waits for the graph's session.
        unsafe { (self.api.delete_graph)(self.raw.as_ptr()) }
    }
}

struct Options {
    api: &'static Api,
    raw: NonNull<TfSessionOptions>,
}

impl Options {
    fn new(api: &'static Api, threads: Threads) -> Result<Self, Status> {
        // SAFETY: the function has no arguments; the result is owned until it is deleted
        // in drop.
        let raw = unsafe { (api.new_session_options)() };
        let raw = NonNull::new(raw).expect("TF_NewSessionOptions allocates with operator new");
        let options = Self { api, raw };
        let config = session_config(threads.intra_op, threads.inter_op);
        let outcome = Outcome::new(api);
        // SAFETY: the configuration is read only during the call.
        unsafe {
            (api.set_config)(raw.as_ptr(), config.as_ptr().cast(), config.len(), outcome.as_ptr());
        }
        outcome.into_result().map(|()| options)
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: owned, and deleted once.
        unsafe { (self.api.delete_session_options)(self.raw.as_ptr()) }
    }
}

struct OwnedBuffer {
    api: &'static Api,
    raw: NonNull<TfBuffer>,
}

impl OwnedBuffer {
    fn new(api: &'static Api) -> Self {
        // SAFETY: the function has no arguments; the result is owned until it is deleted
        // in drop.
        let raw = unsafe { (api.new_buffer)() };
        Self { api, raw: NonNull::new(raw).expect("TF_NewBuffer allocates with operator new") }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the buffer is alive, and nothing writes to it any more.
        let buffer = unsafe { self.raw.as_ref() };
        if buffer.data.is_null() {
            return &[];
        }
        // SAFETY: the library has filled the buffer with this number of bytes.
        unsafe { slice::from_raw_parts(buffer.data.cast(), buffer.length) }
    }
}

impl Drop for OwnedBuffer {
    fn drop(&mut self) {
        // SAFETY: owned, and deleted once, which also frees the bytes.
        unsafe { (self.api.delete_buffer)(self.raw.as_ptr()) }
    }
}
