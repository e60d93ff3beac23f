//! The library's functions that are used. Signatures are those of `tensorflow/c/*.h` of
//! TensorFlow 2.21.

use std::ffi::{c_char, c_int, c_void};

use libloading::Library;

/// An opaque C type.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub(super) struct $name {
            _private: [u8; 0],
        }
    )*};
}

opaque!(TfStatus TfTensor TfGraph TfSession TfSessionOptions TfOperation);

/// `TF_Buffer`: bytes with the function that frees them.
#[repr(C)]
pub(super) struct TfBuffer {
    pub(super) data: *const c_void,
    pub(super) length: usize,
    pub(super) deallocator: Option<unsafe extern "C" fn(*mut c_void, usize)>,
}

/// `TF_Output`: one output of an operation.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TfOutput {
    pub(super) operation: *mut TfOperation,
    pub(super) index: c_int,
}

/// `TF_TString`: 24 bytes that only the library's own functions access.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct TfString {
    _private: [u8; 24],
}

/// The `deallocator` argument of `TF_NewTensor`.
pub(super) type Deallocator = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

macro_rules! api {
    ($($field:ident = $symbol:literal ( $($argument:ty),* ) $(-> $result:ty)?;)*) => {
        /// The library's functions.
        pub(super) struct Api {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Api {
            /// Looks up every function.
            ///
            /// # Safety
            /// `library` must be libtensorflow_cc of a version whose functions
            /// have the signatures above, and must stay loaded for ever.
            pub(super) unsafe fn load(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the caller guarantees the signatures, and that the library
                    // is never unloaded, so the pointer stays valid.
                    $($field: *unsafe { library.get(concat!($symbol, "\0").as_bytes()) }?,)*
                })
            }
        }
    };
}

api! {
    version = "TF_Version"() -> *const c_char;

    new_status = "TF_NewStatus"() -> *mut TfStatus;
    delete_status = "TF_DeleteStatus"(*mut TfStatus);
    code = "TF_GetCode"(*const TfStatus) -> c_int;
    message = "TF_Message"(*const TfStatus) -> *const c_char;

    new_tensor = "TF_NewTensor"(
        c_int, *const i64, c_int, *mut c_void, usize, Deallocator, *mut c_void
    ) -> *mut TfTensor;
    allocate_tensor = "TF_AllocateTensor"(c_int, *const i64, c_int, usize) -> *mut TfTensor;
    delete_tensor = "TF_DeleteTensor"(*mut TfTensor);
    tensor_type = "TF_TensorType"(*const TfTensor) -> c_int;
    tensor_rank = "TF_NumDims"(*const TfTensor) -> c_int;
    tensor_dim = "TF_Dim"(*const TfTensor, c_int) -> i64;
    tensor_bytes = "TF_TensorByteSize"(*const TfTensor) -> usize;
    tensor_elements = "TF_TensorElementCount"(*const TfTensor) -> i64;
    tensor_data = "TF_TensorData"(*const TfTensor) -> *mut c_void;

    string_init = "TF_StringInit"(*mut TfString);
    string_copy = "TF_StringCopy"(*mut TfString, *const c_char, usize);
    string_data = "TF_StringGetDataPointer"(*const TfString) -> *const c_char;
    string_size = "TF_StringGetSize"(*const TfString) -> usize;
    string_dealloc = "TF_StringDealloc"(*mut TfString);

    new_graph = "TF_NewGraph"() -> *mut TfGraph;
    delete_graph = "TF_DeleteGraph"(*mut TfGraph);
    operation_by_name =
        "TF_GraphOperationByName"(*mut TfGraph, *const c_char) -> *mut TfOperation;
    operation_outputs = "TF_OperationNumOutputs"(*mut TfOperation) -> c_int;

    new_session_options = "TF_NewSessionOptions"() -> *mut TfSessionOptions;
    delete_session_options = "TF_DeleteSessionOptions"(*mut TfSessionOptions);
    set_config = "TF_SetConfig"(*mut TfSessionOptions, *const c_void, usize, *mut TfStatus);
    new_buffer = "TF_NewBuffer"() -> *mut TfBuffer;
    delete_buffer = "TF_DeleteBuffer"(*mut TfBuffer);
    load_session = "TF_LoadSessionFromSavedModel"(
        *const TfSessionOptions, *const TfBuffer, *const c_char, *const *const c_char, c_int,
        *mut TfGraph, *mut TfBuffer, *mut TfStatus
    ) -> *mut TfSession;
    close_session = "TF_CloseSession"(*mut TfSession, *mut TfStatus);
    delete_session = "TF_DeleteSession"(*mut TfSession, *mut TfStatus);
    run = "TF_SessionRun"(
        *mut TfSession, *const TfBuffer,
        *const TfOutput, *const *mut TfTensor, c_int,
        *const TfOutput, *mut *mut TfTensor, c_int,
        *const *const TfOperation, c_int,
        *mut TfBuffer, *mut TfStatus
    );
}
