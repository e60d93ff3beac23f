//! LightGBM through its C interface.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ops::Range,
    path::Path,
    ptr,
};

use crate::{
    Result, dynamic,
    model::{Margins, Model, Scorer, values},
};

type Handle = *mut c_void;
type PredictForMat = unsafe extern "C" fn(
    Handle,
    *const c_void,
    c_int,
    i32,
    i32,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_char,
    *mut i64,
    *mut f64,
) -> c_int;
type FastInit = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    i32,
    *const c_char,
    *mut Handle,
) -> c_int;
type Fast = unsafe extern "C" fn(Handle, *const c_void, *mut i64, *mut f64) -> c_int;

/// A lib_lightgbm.so. The signatures are those of `c_api.h` from version 3.0 on.
struct Library {
    last_error: unsafe extern "C" fn() -> *const c_char,
    load: unsafe extern "C" fn(*const c_char, *mut c_int, *mut Handle) -> c_int,
    free: unsafe extern "C" fn(Handle) -> c_int,
    predict: PredictForMat,
    prepare_row: FastInit,
    predict_row: Fast,
    free_row: unsafe extern "C" fn(Handle) -> c_int,
}

impl Library {
    fn open(path: &str) -> Result<Self> {
        let library = dynamic::open(path)?;
        // SAFETY: the types of the functions are those that the library's header has.
        unsafe {
            Ok(Self {
                last_error: dynamic::function(library, "LGBM_GetLastError")?,
                load: dynamic::function(library, "LGBM_BoosterCreateFromModelfile")?,
                free: dynamic::function(library, "LGBM_BoosterFree")?,
                predict: dynamic::function(library, "LGBM_BoosterPredictForMat")?,
                prepare_row: dynamic::function(
                    library,
                    "LGBM_BoosterPredictForMatSingleRowFastInit",
                )?,
                predict_row: dynamic::function(library, "LGBM_BoosterPredictForMatSingleRowFast")?,
                free_row: dynamic::function(library, "LGBM_FastConfigFree")?,
            })
        }
    }

    fn check(&self, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the function returns a string that is valid until the thread's next call.
        let message = unsafe { CStr::from_ptr((self.last_error)()) };
        Err(message.to_string_lossy().into_owned().into())
    }
}

/// The codes of the C interface for f32, rows one after the other, and margins.
const FLOAT32: c_int = 0;
const ROW_MAJOR: c_int = 1;
const MARGINS: c_int = 1;
/// All iterations.
const ALL: c_int = -1;
const PARAMETERS: &CStr = c"num_threads=1";

/// The prediction of dense rows: for a single row, with the settings made beforehand, which is
/// LightGBM's fastest function for it.
pub(crate) struct LightGbm {
    library: Library,
    booster: Handle,
    /// The settings for a single row.
    row: Handle,
    width: i32,
    batches: Vec<Range<usize>>,
    out: Vec<f64>,
}

impl LightGbm {
    pub(crate) fn new(path: &str, model: &Model) -> Result<Self> {
        let library = Library::open(path)?;
        let (booster, row) = (load(&library, &model.file)?, ptr::null_mut());
        let width = i32::try_from(model.width)?;
        let mut loaded =
            Self { library, booster, row, width, batches: Vec::new(), out: Vec::new() };
        let (library, parameters) = (&loaded.library, PARAMETERS.as_ptr());
        // SAFETY: the handle is valid, the parameters end with a zero, and `row` can be written.
        library.check(unsafe {
            (library.prepare_row)(
                booster,
                MARGINS,
                0,
                ALL,
                FLOAT32,
                width,
                parameters,
                &mut loaded.row,
            )
        })?;
        Ok(loaded)
    }
}

fn load(library: &Library, file: &Path) -> Result<Handle> {
    let path = CString::new(file.to_str().ok_or("the path is not UTF-8")?)?;
    let (mut booster, mut iterations) = (ptr::null_mut(), 0);
    // SAFETY: the path ends with a zero, and both results can be written.
    library.check(unsafe { (library.load)(path.as_ptr(), &mut iterations, &mut booster) })?;
    Ok(booster)
}

impl Drop for LightGbm {
    fn drop(&mut self) {
        // SAFETY: the handles are valid or null, and not used after this.
        unsafe {
            if !self.row.is_null() {
                (self.library.free_row)(self.row);
            }
            (self.library.free)(self.booster);
        }
    }
}

impl Scorer for LightGbm {
    fn prepare(&mut self, _: &[f32], _: usize, batches: &[Range<usize>]) -> Result<()> {
        self.batches = batches.to_vec();
        self.out = vec![0.0; batches.iter().map(Range::len).max().unwrap_or(0)];
        Ok(())
    }

    fn margins(&mut self, rows: &[f32], at: usize) -> Result<Margins<'_>> {
        let batch = &self.batches[at];
        let data = rows[values(batch, usize::try_from(self.width)?)].as_ptr().cast();
        let (library, out) = (&self.library, self.out.as_mut_ptr());
        let mut length = 0;
        // SAFETY: the handles are valid, `data` has as many rows as the batch, and the models have
        // one output, so that `out` has room for the margins.
        let code = unsafe {
            if batch.len() == 1 {
                (library.predict_row)(self.row, data, &mut length, out)
            } else {
                (library.predict)(
                    self.booster,
                    data,
                    FLOAT32,
                    i32::try_from(batch.len())?,
                    self.width,
                    ROW_MAJOR,
                    MARGINS,
                    0,
                    ALL,
                    PARAMETERS.as_ptr(),
                    &mut length,
                    out,
                )
            }
        };
        library.check(code)?;
        Ok(Margins::Double(&self.out[..usize::try_from(length)?]))
    }
}
