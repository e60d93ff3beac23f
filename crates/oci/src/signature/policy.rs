//! Which images have to be signed, and by whom.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use outrigger_core::Digest;

use super::{InvalidKey, PublicKey, Signatures, Unverified};
use crate::{Prefix, Reference};

/// A rule as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureRule {
    /// Where it holds; of several the longest does.
    pub prefix: Prefix,
    /// Files with public keys in PEM. None: no signature is asked for.
    pub keys: Vec<PathBuf>,
}

/// Why a rule cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct InvalidRule {
    /// Which one.
    pub rule: usize,
    /// Which of its keys.
    pub key: usize,
    path: PathBuf,
    source: InvalidKey,
}

/// Which images have to be signed, and by whom.
#[derive(Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
}

/// The keys of which one must have signed.
#[derive(Debug)]
pub struct Rule {
    prefix: Prefix,
    files: Vec<KeyFile>,
}

/// A file with keys, read again when it has changed.
#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    state: Option<FileState>,
    keys: Vec<PublicKey>,
}

/// What changes with a file. A mounted Secret is replaced as a whole: what its
/// links lead to is another file then.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    length: u64,
    modified: Option<SystemTime>,
}

impl Policy {
    /// Reads all keys. Blocks.
    ///
    /// # Errors
    /// A file that gives no keys.
    pub fn new(rules: Vec<SignatureRule>) -> Result<Self, InvalidRule> {
        let rules = rules.into_iter().enumerate();
        let rules = rules.map(|(at, rule)| Rule::new(at, rule)).collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    /// Who must have signed `image`; `None`: nobody.
    pub fn rule(&self, image: &Reference) -> Option<&Rule> {
        let matching = self.rules.iter().filter(|rule| image.is_within(&rule.prefix));
        let longest = matching.max_by_key(|rule| rule.prefix.segments());
        longest.filter(|rule| !rule.files.is_empty())
    }

    /// Whether anything has to be signed.
    pub fn is_empty(&self) -> bool {
        self.rules.iter().all(|rule| rule.files.is_empty())
    }
}

impl Rule {
    fn new(at: usize, rule: SignatureRule) -> Result<Self, InvalidRule> {
        let files = rule.keys.into_iter().enumerate().map(|(key, path)| {
            let invalid = |source| InvalidRule { rule: at, key, path: path.clone(), source };
            KeyFile::read(&path).map_err(invalid)
        });
        Ok(Self { files: files.collect::<Result<_, _>>()?, prefix: rule.prefix })
    }

    /// The key by which one of `signatures` signs `digest`, of those that are in
    /// the files now. Blocks.
    ///
    /// # Errors
    /// There is none.
    pub fn verify(&self, digest: Digest, signatures: &Signatures) -> Result<PublicKey, Unverified> {
        let keys: Vec<_> = self.files.iter().flat_map(KeyFile::keys).collect();
        signatures.verify(digest, &keys).cloned()
    }
}

impl KeyFile {
    fn read(path: &Path) -> Result<Self, InvalidKey> {
        // In this order: a change between the two is seen the next time.
        let state = FileState::of(path).ok();
        let keys = PublicKey::read(path)?;
        Ok(Self { path: path.to_owned(), known: Mutex::new(Known { state, keys }) })
    }

    /// The keys as of now. A file that cannot be read any more, or holds no key,
    /// changes nothing: a slip of the hand must not take every model down.
    fn keys(&self) -> Vec<PublicKey> {
        let mut known = self.known();
        let state = FileState::of(&self.path).ok();
        if known.state != state {
            known.state = state;
            match PublicKey::read(&self.path) {
                Ok(keys) => {
                    tracing::info!(path = %self.path.display(), keys = keys.len(), "keys read again");
                    known.keys = keys;
                }
                Err(error) => tracing::warn!(
                    path = %self.path.display(), %error,
                    "keys cannot be read again, those read before stay in force"
                ),
            }
        }
        known.keys.clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileState {
    fn of(path: &Path) -> std::io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: metadata.modified().ok(),
        })
    }
}
