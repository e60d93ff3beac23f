//! The policy: which images must be signed, and with which keys.

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

/// A configured rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureRule {
    /// The images that the rule applies to. If several rules match, the longest prefix wins.
    pub prefix: Prefix,
    /// Files with public keys in PEM. An empty list means that no signature is required.
    pub keys: Vec<PathBuf>,
}

/// The error for a rule that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct InvalidRule {
    /// The rule's index.
    pub rule: usize,
    /// The index of the key file within the rule.
    pub key: usize,
    path: PathBuf,
    source: InvalidKey,
}

/// The policy: which images must be signed, and with which keys.
#[derive(Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
}

/// A rule: an image under the prefix must be signed with a key of one of the files.
#[derive(Debug)]
pub struct Rule {
    prefix: Prefix,
    files: Vec<KeyFile>,
}

/// A key file, read again when it has changed.
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

/// The attributes by which a change of the file is detected. A mounted Secret is replaced as a
/// whole, so its links then lead to another inode.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    length: u64,
    modified: Option<SystemTime>,
}

impl Policy {
    /// Creates the policy and reads all keys. Blocks.
    ///
    /// # Errors
    /// A key file cannot be used.
    pub fn new(rules: Vec<SignatureRule>) -> Result<Self, InvalidRule> {
        let rules = rules.into_iter().enumerate();
        let rules = rules.map(|(at, rule)| Rule::new(at, rule)).collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    /// The rule for `image`; `None` if it needs no signature.
    pub fn rule(&self, image: &Reference) -> Option<&Rule> {
        let matching = self.rules.iter().filter(|rule| image.is_within(&rule.prefix));
        let longest = matching.max_by_key(|rule| rule.prefix.segments());
        longest.filter(|rule| !rule.files.is_empty())
    }

    /// True if no image has to be signed.
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

    /// Finds the key with which one of `signatures` signs `digest`, among the keys that the files
    /// hold now. Blocks.
    ///
    /// # Errors
    /// No signature is valid.
    pub fn verify(&self, digest: Digest, signatures: &Signatures) -> Result<PublicKey, Unverified> {
        let keys: Vec<_> = self.files.iter().flat_map(KeyFile::keys).collect();
        signatures.verify(digest, &keys).cloned()
    }
}

impl KeyFile {
    fn read(path: &Path) -> Result<Self, InvalidKey> {
        // The state is read before the keys, so that a change in between is noticed at the next
        // call.
        let state = FileState::of(path).ok();
        let keys = PublicKey::read(path)?;
        Ok(Self { path: path.to_owned(), known: Mutex::new(Known { state, keys }) })
    }

    /// The current keys. If the file can no longer be read, or holds no key, the previous keys
    /// remain: an accidental edit must not take every model down.
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
                    "keys cannot be read again; the previous ones stay in force"
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
