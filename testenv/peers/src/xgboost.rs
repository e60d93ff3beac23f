//! XGBoost through its C interface.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    ops::Range,
    path::Path,
    ptr, slice,
};

use serde_json::{Value, json};

use crate::{
    Result,
    dynamic::{self, function},
    model::{Margins, Model, Scorer, values},
    rows::Entries,
};

type Handle = *mut c_void;
type Predict = unsafe extern "C" fn(
    Handle,
    *const c_char,
    *const c_char,
    Handle,
    *mut *const u64,
    *mut u64,
    *mut *const f32,
) -> c_int;
type CreateMatrix = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const c_char,
    u64,
    *const c_char,
    *mut Handle,
) -> c_int;
type PredictFromMatrix = unsafe extern "C" fn(
    Handle,
    Handle,
    *const c_char,
    *mut *const u64,
    *mut u64,
    *mut *const f32,
) -> c_int;
type CreateFromCsr = unsafe extern "C" fn(
    *const usize,
    *const c_uint,
    *const f32,
    usize,
    usize,
    usize,
    *mut Handle,
) -> c_int;
type PredictMatrix =
    unsafe extern "C" fn(Handle, Handle, c_int, c_uint, c_int, *mut u64, *mut *const f32) -> c_int;

/// A libxgboost.so. The signatures are those of `c_api.h` from version 1.5 on.
pub(crate) struct Library {
    last_error: unsafe extern "C" fn() -> *const c_char,
    create: unsafe extern "C" fn(*const Handle, u64, *mut Handle) -> c_int,
    free: unsafe extern "C" fn(Handle) -> c_int,
    set: unsafe extern "C" fn(Handle, *const c_char, *const c_char) -> c_int,
    load: unsafe extern "C" fn(Handle, *const c_char) -> c_int,
    features: unsafe extern "C" fn(Handle, *mut u64) -> c_int,
    predict: Predict,
    create_matrix: CreateMatrix,
    predict_from_matrix: PredictFromMatrix,
    free_matrix: unsafe extern "C" fn(Handle) -> c_int,
    library: &'static libloading::Library,
}

impl Library {
    /// Opens a library.
    pub(crate) fn open(path: &str) -> Result<&'static Self> {
        let library = dynamic::open(path)?;
        // SAFETY: the types of the functions are those that the library's header has.
        unsafe {
            Ok(Box::leak(Box::new(Self {
                last_error: function(library, "XGBGetLastError")?,
                create: function(library, "XGBoosterCreate")?,
                free: function(library, "XGBoosterFree")?,
                set: function(library, "XGBoosterSetParam")?,
                load: function(library, "XGBoosterLoadModel")?,
                features: function(library, "XGBoosterGetNumFeature")?,
                predict: function(library, "XGBoosterPredictFromDense")?,
                create_matrix: function(library, "XGDMatrixCreateFromCSR")?,
                predict_from_matrix: function(library, "XGBoosterPredictFromDMatrix")?,
                free_matrix: function(library, "XGDMatrixFree")?,
                library,
            })))
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

/// The threads of a prediction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Threads {
    /// The caller's.
    One,
    /// One for each core, by OpenMP, which is XGBoost's default.
    All,
}

/// A model loaded into XGBoost.
pub(crate) struct Booster {
    library: &'static Library,
    handle: Handle,
}

impl Booster {
    pub(crate) fn load(library: &'static Library, file: &Path, threads: Threads) -> Result<Self> {
        let mut handle = ptr::null_mut();
        // SAFETY: no matrices are given, and `handle` can be written.
        library.check(unsafe { (library.create)(ptr::null(), 0, &mut handle) })?;
        let booster = Self { library, handle };
        let path = CString::new(file.to_str().ok_or("the path is not UTF-8")?)?;
        booster.set(threads)?;
        // SAFETY: the handle is valid and the path ends with a zero.
        library.check(unsafe { (library.load)(handle, path.as_ptr()) })?;
        // A model may bring settings of its own.
        booster.set(threads)?;
        Ok(booster)
    }

    fn set(&self, threads: Threads) -> Result<()> {
        let value = match threads {
            Threads::One => c"1",
            Threads::All => c"0",
        };
        let (name, value) = (c"nthread".as_ptr(), value.as_ptr());
        // SAFETY: the handle is valid and both strings end with a zero.
        self.library.check(unsafe { (self.library.set)(self.handle, name, value) })
    }

    fn features(&self) -> Result<usize> {
        let mut features = 0;
        // SAFETY: the handle is valid, and `features` can be written.
        self.library.check(unsafe { (self.library.features)(self.handle, &mut features) })?;
        Ok(usize::try_from(features)?)
    }
}

impl Drop for Booster {
    fn drop(&mut self) {
        // SAFETY: the handle is valid, and not used after this.
        unsafe { (self.library.free)(self.handle) };
    }
}

/// The in-place prediction of dense rows, and the prediction of a matrix of sparse rows.
pub(crate) struct XGBoost {
    booster: Booster,
    in_place: CString,
    of_matrix: CString,
    /// The description of each batch of rows.
    batches: Vec<CString>,
}

impl XGBoost {
    pub(crate) fn new(library: &'static Library, model: &Model) -> Result<Self> {
        let booster = Booster::load(library, &model.file, Threads::One)?;
        let mut config = json!({
            "type": 1,
            "training": false,
            "iteration_begin": 0,
            "iteration_end": 0,
            "strict_shape": false,
        });
        let of_matrix = settings(&config)?;
        config["cache_id"] = 0.into();
        config["missing"] = NAN.into();
        Ok(Self { booster, in_place: settings(&config)?, of_matrix, batches: Vec::new() })
    }
}

/// Stands for a NaN in settings: the format of XGBoost has numbers that JSON does not have.
const NAN: &str = "NaN";

/// The text of settings.
fn settings(settings: &Value) -> Result<CString> {
    Ok(CString::new(settings.to_string().replace(&format!("\"{NAN}\""), NAN))?)
}

/// The description of an array of numbers, of which each has the type `kind` in the words of NumPy.
/// The array must outlive the use of the description.
fn interface<T>(values: &[T], shape: &[usize], kind: &str) -> Result<CString> {
    let first = values.as_ptr() as usize;
    settings(&json!({ "data": [first, true], "shape": shape, "typestr": kind, "version": 3 }))
}

impl Scorer for XGBoost {
    fn prepare(&mut self, rows: &[f32], width: usize, batches: &[Range<usize>]) -> Result<()> {
        let described = batches
            .iter()
            .map(|batch| interface(&rows[values(batch, width)], &[batch.len(), width], "<f4"));
        self.batches = described.collect::<Result<_>>()?;
        Ok(())
    }

    fn margins(&mut self, _: &[f32], at: usize) -> Result<Margins<'_>> {
        let Booster { library, handle } = &self.booster;
        let (rows, config) = (self.batches[at].as_ptr(), self.in_place.as_ptr());
        let mut results = Results::default();
        let out = results.out();
        // SAFETY: the handle is valid, the strings end with a zero, and the rows that the batch
        // describes are there until the last call, as `prepare` requires.
        library.check(unsafe {
            (library.predict)(*handle, rows, config, ptr::null_mut(), out.0, out.1, out.2)
        })?;
        // SAFETY: the results are those of the last call with the booster, which borrows `self`.
        unsafe { results.margins() }
    }

    fn margins_of(&mut self, rows: &Entries) -> Result<Margins<'_>> {
        let Booster { library, handle } = &self.booster;
        let columns = self.booster.features()? as u64;
        let Entries { ids, weights, offsets } = rows;
        let offsets = interface(offsets, &[offsets.len()], "<u4")?;
        let ids = interface(ids, &[ids.len()], "<u8")?;
        let weights = interface(weights, &[weights.len()], "<f4")?;
        let config = settings(&json!({ "missing": NAN, "nthread": 1 }))?;
        let [offsets, ids, weights, config] =
            [&offsets, &ids, &weights, &config].map(|text| text.as_ptr());
        let mut matrix = ptr::null_mut();
        // SAFETY: the strings end with a zero, and the arrays that they describe are those of
        // `rows`. The library copies them.
        library.check(unsafe {
            (library.create_matrix)(offsets, ids, weights, columns, config, &mut matrix)
        })?;
        let mut results = Results::default();
        let out = results.out();
        // SAFETY: both handles are valid, and the settings end with a zero; the matrix is not used
        // after it is freed, and the results are the booster's.
        let code = unsafe {
            let config = self.of_matrix.as_ptr();
            let code = (library.predict_from_matrix)(*handle, matrix, config, out.0, out.1, out.2);
            (library.free_matrix)(matrix);
            code
        };
        library.check(code)?;
        // SAFETY: the results are those of the last call with the booster, which borrows `self`.
        unsafe { results.margins() }
    }
}

/// The result of a prediction: values, whose number is the product of the sizes in the shape.
struct Results {
    shape: *const u64,
    dimensions: u64,
    values: *const f32,
}

impl Default for Results {
    fn default() -> Self {
        Self { shape: ptr::null(), dimensions: 0, values: ptr::null() }
    }
}

impl Results {
    fn out(&mut self) -> (&mut *const u64, &mut u64, &mut *const f32) {
        (&mut self.shape, &mut self.dimensions, &mut self.values)
    }

    /// The values as margins.
    ///
    /// # Safety
    /// A prediction must have succeeded, and its booster must not predict again or be freed before
    /// the lifetime ends.
    unsafe fn margins<'a>(&self) -> Result<Margins<'a>> {
        // SAFETY: the library returns a shape of that many dimensions, and as many values as the
        // shape says, which are valid until the next call with the booster.
        unsafe {
            let shape = slice::from_raw_parts(self.shape, usize::try_from(self.dimensions)?);
            let count = shape.iter().product::<u64>();
            Ok(Margins::Single(slice::from_raw_parts(self.values, usize::try_from(count)?)))
        }
    }
}

// SAFETY: the library allows predictions of one model from several threads at once, and the handle
// is used for nothing else after it is loaded.
unsafe impl Sync for Leaves {}

/// Sparse rows as XGBoost takes them.
pub(crate) struct Sparse {
    /// The columns, which have the type that the library takes.
    pub(crate) columns: Vec<c_uint>,
    pub(crate) values: Vec<f32>,
    /// The place where each row begins, and the end.
    pub(crate) offsets: Vec<usize>,
}

/// The leaf prediction of sparse rows, as XGBoost Serving calls it: each call makes a matrix.
///
/// Its functions are those of version 1.5, which the newest versions do not have.
pub(crate) struct Leaves {
    booster: Booster,
    features: usize,
    create: CreateFromCsr,
    predict: PredictMatrix,
}

impl Leaves {
    /// The option of `XGBoosterPredict` for leaves.
    const LEAVES: c_int = 2;

    pub(crate) fn new(library: &'static Library, file: &Path, threads: Threads) -> Result<Self> {
        let booster = Booster::load(library, file, threads)?;
        let features = booster.features()?;
        // SAFETY: the types of the functions are those that the header of XGBoost 1.5 has.
        unsafe {
            let library = library.library;
            let create = function(library, "XGDMatrixCreateFromCSREx")?;
            let predict = function(library, "XGBoosterPredict")?;
            Ok(Self { booster, features, create, predict })
        }
    }

    /// The number of leaves that were found for the rows.
    pub(crate) fn find(&self, rows: &Sparse) -> Result<usize> {
        let Booster { library, handle } = &self.booster;
        let (mut matrix, mut count, mut result) = (ptr::null_mut(), 0, ptr::null());
        // SAFETY: the pointers are to as many elements as the lengths say.
        library.check(unsafe {
            (self.create)(
                rows.offsets.as_ptr(),
                rows.columns.as_ptr(),
                rows.values.as_ptr(),
                rows.offsets.len(),
                rows.values.len(),
                self.features,
                &mut matrix,
            )
        })?;
        // SAFETY: both handles are valid; the matrix is not used after it is freed.
        let code = unsafe {
            let code = (self.predict)(*handle, matrix, Self::LEAVES, 0, 0, &mut count, &mut result);
            (library.free_matrix)(matrix);
            code
        };
        library.check(code)?;
        Ok(usize::try_from(count)?)
    }
}
