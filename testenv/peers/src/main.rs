//! Times the scoring of tree models by one library. `make bench` runs it for several at once, and
//! asks them by turns.
//!
//! ```text
//! outrigger-peers COMMAND  LIBRARY ...        answers lines
//!                 scores   LIBRARY MODEL...   `time NAME ROWS`, `margins NAME ROWS KIND` of dense
//!                                             rows, and `matrix NAME ROWS KIND` of sparse rows
//!                 load     LIBRARY            with the path of a model file
//!                 fm       LIBRARY DIRECTORY  with a number of rows
//!                 callers  LIBRARY DIRECTORY  `capacity SECONDS`, and `latency RATE SECONDS`
//! ```
//!
//! LIBRARY is `ours`, `hessboost`, or the path of a `libxgboost.so` or `lib_lightgbm.so`. MODEL is
//! a path without its ending: `MODEL.json` is a model of XGBoost or CatBoost, or `MODEL.txt` one of
//! LightGBM, and `MODEL.rows` has rows for it, as the bytes of f32. KIND is `dense`, `missing` or
//! `sparse`. The program prints `ready`, and for each line of its input a line of JSON: seconds a call, or
//! margins as the numbers that their bits are. Everything but `callers` runs on one thread.

mod callers;
mod dynamic;
mod fm;
#[cfg(feature = "hessboost")]
mod hessboost;
mod lightgbm;
mod load;
mod model;
mod ours;
mod rows;
mod scores;
mod timer;
mod xgboost;

use std::{
    env,
    error::Error,
    io::{self, BufRead},
    path::Path,
};

use serde_json::Value;

use crate::xgboost::{Library, Threads};

/// The allocator of the released binary. XGBoost has its own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The result of a step that may fail.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str =
    "outrigger-peers scores LIBRARY MODEL..., load LIBRARY, or fm|callers LIBRARY DIRECTORY";

fn main() -> Result<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["scores", library, models @ ..] => {
            let models = scores::read(models)?;
            let mut scorers = scores::load(library, &models)?;
            answer(|question| scores::answer(&mut scorers, question))
        }
        ["load", "ours"] => answer(|file| load::ours(Path::new(file))),
        ["load", library] => {
            let library = Library::open(library)?;
            answer(|file| load::xgboost(library, Path::new(file)))
        }
        ["fm", library, directory] => {
            let mut model = fm::read(library, Path::new(directory), Threads::One)?;
            answer(|rows| fm::seconds(&mut *model, rows.parse()?))
        }
        ["callers", library, directory] => {
            let mut model = fm::read(library, Path::new(directory), Threads::All)?;
            let callers = callers::Callers::new(&mut *model)?;
            answer(|question| callers.answer(question))
        }
        _ => Err(USAGE.into()),
    }
}

/// Answers each line of the input with one line.
fn answer(mut answer: impl FnMut(&str) -> Result<Value>) -> Result<()> {
    println!("ready");
    for line in io::stdin().lock().lines() {
        println!("{}", answer(line?.trim())?);
    }
    Ok(())
}
