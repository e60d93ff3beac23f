//! The addresses of objects: `s3://bucket/key`, `gs://bucket/key`, `az://container/key`.

use std::{
    collections::HashMap,
    fmt,
    path::Path,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use super::{cloud, objects::Objects};

/// The schemes of addresses, each with its kind of store.
const SCHEMES: [(&str, Kind); 6] = [
    ("s3", Kind::S3),
    ("s3a", Kind::S3),
    ("gs", Kind::Google),
    ("az", Kind::Azure),
    ("abfs", Kind::Azure),
    ("abfss", Kind::Azure),
];

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    S3,
    Google,
    Azure,
}

/// The address of an object or of a prefix. It is not encoded: a percent sign stands for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    kind: Kind,
    /// The scheme and the bucket: `s3://bucket`.
    bucket: String,
    /// The key, without slashes at its ends.
    pub(crate) key: String,
}

/// The stores that are in use, by their buckets: they share connections and credentials.
static STORES: LazyLock<Mutex<HashMap<String, Arc<dyn Objects>>>> = LazyLock::new(Mutex::default);

/// True if a location is an address, and not a path of the file system.
pub(crate) fn is_address(location: &Path) -> bool {
    location.to_str().is_some_and(|text| text.contains("://"))
}

impl Address {
    /// The address at a location; `None` if it is a path of the file system.
    ///
    /// # Errors
    /// The scheme is unknown, the bucket is absent, or the address has a user or a password.
    pub(crate) fn of(location: &Path) -> Result<Option<Self>, String> {
        let Some((scheme, rest)) = location.to_str().and_then(|text| text.split_once("://")) else {
            return Ok(None);
        };
        let known = SCHEMES.iter().find(|(name, _)| *name == scheme);
        let Some((_, kind)) = known else {
            return Err(format!(
                "{scheme}:// is not known; a location is a path, s3://, gs:// or az://"
            ));
        };
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        // Azure has container@account.
        let has_user = bucket.contains('@') && *kind != Kind::Azure;
        if has_user || bucket.contains(':') {
            return Err(format!(
                "an address {scheme}:// has no credentials: they come from the environment"
            ));
        }
        if bucket.is_empty() {
            return Err(format!("an address {scheme}:// needs the name of a bucket"));
        }
        let bucket = format!("{scheme}://{bucket}");
        Ok(Some(Self { kind: *kind, bucket, key: key.trim_matches('/').to_owned() }))
    }

    /// For tests: an address that is only shown.
    pub(super) fn shown(key: &str) -> Self {
        Self { kind: Kind::S3, bucket: "s3://scripted".to_owned(), key: key.to_owned() }
    }

    /// The address with this key in the same bucket.
    pub(crate) fn with_key(&self, key: String) -> Self {
        Self { key, ..self.clone() }
    }

    /// The key of another address below this prefix, without the prefix; `None` if it is not there.
    pub(crate) fn rest_of<'a>(&self, other: &'a Self) -> Option<&'a str> {
        let bucket =
            |address: &Self| address.bucket.split_once("://").map(|(_, bucket)| bucket.to_owned());
        if self.kind != other.kind || bucket(self) != bucket(other) {
            return None;
        }
        let rest = other.key.strip_prefix(&self.key)?;
        match self.key.is_empty() || rest.is_empty() {
            true => Some(rest),
            false => rest.strip_prefix('/'),
        }
    }

    /// The store, which is made once in a process.
    ///
    /// # Errors
    /// The settings of the environment are not valid.
    pub(crate) fn objects(&self) -> Result<Arc<dyn Objects>, String> {
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(objects) = stores.get(&self.bucket) {
            return Ok(Arc::clone(objects));
        }
        let objects = cloud::connect(self.kind, &self.bucket)?;
        stores.insert(self.bucket.clone(), Arc::clone(&objects));
        Ok(objects)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => f.write_str(&self.bucket),
            key => write!(f, "{}/{key}", self.bucket),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(location: &str) -> Result<Option<Address>, String> {
        Address::of(Path::new(location))
    }

    #[test]
    fn addresses_have_a_scheme_a_bucket_and_a_key() {
        for path in ["a/b", "/a/b", "s3:/a", "a:b", "s3", ""] {
            assert_eq!(of(path), Ok(None), "{path}");
        }
        for (location, kind, shown, key) in [
            ("s3://b", Kind::S3, "s3://b", ""),
            ("s3://b/", Kind::S3, "s3://b", ""),
            ("s3a://b/c d/%20?.parquet", Kind::S3, "s3a://b/c d/%20?.parquet", "c d/%20?.parquet"),
            ("gs://b/c/", Kind::Google, "gs://b/c", "c"),
            ("az://b/c", Kind::Azure, "az://b/c", "c"),
            ("abfss://b@account/c", Kind::Azure, "abfss://b@account/c", "c"),
        ] {
            let address = of(location).expect("valid").expect("an address");
            assert_eq!((address.kind, address.key.as_str()), (kind, key), "{location}");
            assert_eq!(address.to_string(), shown);
        }
    }

    #[test]
    fn wrong_addresses_are_errors_that_show_no_secrets() {
        for (location, problem) in [
            ("http://host/a", "not known"),
            ("file:///a", "not known"),
            ("s3:///a", "needs the name of a bucket"),
            ("s3://key:secret@bucket/a", "come from the environment"),
            ("gs://secret@bucket/a", "come from the environment"),
            ("az://container@account:secret/a", "come from the environment"),
        ] {
            let error = of(location).expect_err(location);
            assert!(error.contains(problem) && !error.contains("secret"), "{error}");
        }
    }
}
