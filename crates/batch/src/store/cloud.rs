//! S3, Google Cloud Storage and Azure Blob Storage, by the crate `object_store`.

mod failure;
mod http;
mod settings;

use std::{
    fmt, io,
    ops::Range,
    sync::{Arc, LazyLock, mpsc},
};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::{
    ClientConfigKey, GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, PutMode, RetryConfig,
    UpdateVersion,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::MicrosoftAzureBuilder,
    gcp::GoogleCloudStorageBuilder,
    multipart::{MultipartStore, PartId},
    path::Path,
};
use outrigger_tables::Stat;
use tokio::runtime::{Builder, Runtime};

use self::{failure::failure, http::Connector, settings::settings};
use super::{
    address::Kind,
    objects::{Failure, Listed, Objects, Put},
};

/// The threads that the requests of all stores share.
const THREADS: usize = 2;

/// The runtime of all requests. Callers block until theirs is done.
static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(THREADS).thread_name("objects").enable_all().build()
});

/// A bucket.
struct Cloud<S> {
    kind: Kind,
    bucket: String,
    store: Arc<S>,
}

/// A builder with the variables of the environment that it knows.
macro_rules! configured {
    ($builder:expr, $prefix:literal) => {{
        let mut builder = $builder;
        for (name, value) in settings($prefix)? {
            if let Ok(key) = name.to_ascii_lowercase().parse() {
                builder = builder.with_config(key, value);
            }
        }
        builder
    }};
}
/// The store of a bucket, with the settings and credentials of the environment. Nothing is sent.
///
/// # Errors
/// The settings are not valid.
pub(super) fn connect(kind: Kind, bucket: &str) -> Result<Arc<dyn Objects>, String> {
    // Requests are repeated with more patience than the library has.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let problem = |error: object_store::Error| format!("{bucket}: {error}");
    Ok(match kind {
        Kind::S3 => {
            let builder = configured!(AmazonS3Builder::new(), "AWS_");
            let builder = with_endpoint(builder.with_url(bucket).with_retry(retry));
            Cloud::of(
                kind,
                bucket,
                builder.with_http_connector(Connector).build().map_err(problem)?,
            )
        }
        Kind::Google => {
            let mut builder = configured!(GoogleCloudStorageBuilder::new(), "GOOGLE_");
            if let Some((_, path)) = settings("SERVICE_ACCOUNT")?.pop() {
                builder = builder.with_service_account_path(path);
            }
            let builder = builder.with_url(bucket).with_retry(retry);
            Cloud::of(
                kind,
                bucket,
                builder.with_http_connector(Connector).build().map_err(problem)?,
            )
        }
        Kind::Azure => {
            let mut builder = configured!(MicrosoftAzureBuilder::new(), "AZURE_");
            // The address of a managed identity.
            if let Some((_, address)) = settings("IDENTITY_ENDPOINT")?.pop() {
                builder = builder.with_msi_endpoint(address);
            }
            let builder = builder.with_url(bucket).with_retry(retry);
            Cloud::of(
                kind,
                bucket,
                builder.with_http_connector(Connector).build().map_err(problem)?,
            )
        }
    })
}

/// Allows connections without TLS to an endpoint that the environment names so, as AWS's own
/// programs do.
fn with_endpoint(builder: AmazonS3Builder) -> AmazonS3Builder {
    let keys = [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint];
    let mut endpoints = keys.iter().filter_map(|key| builder.get_config_value(key));
    match endpoints.any(|endpoint| endpoint.starts_with("http://")) {
        true => builder.with_config(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp), "true"),
        false => builder,
    }
}

impl<S: ObjectStore + MultipartStore> Cloud<S> {
    fn of(kind: Kind, bucket: &str, store: S) -> Arc<dyn Objects> {
        Arc::new(Self { kind, bucket: bucket.to_owned(), store: Arc::new(store) })
    }

    /// The result of a request. Blocks. The caller may be a thread of any runtime.
    fn call<T: Send + 'static, F>(&self, request: impl FnOnce(Arc<S>) -> F) -> Result<T, Failure>
    where
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let runtime = RUNTIME.as_ref().map_err(|error| Failure::Other(error.to_string()))?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let request = request(Arc::clone(&self.store));
        runtime.spawn(async move { sender.send(request.await) });
        let ended = receiver.recv();
        let result = ended.map_err(|_| Failure::Other("a request panicked".to_owned()))?;
        result.map_err(failure)
    }

    /// The result of a request that needs no object: it is the bucket that is not there.
    fn in_bucket<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        result.map_err(|failure| match failure {
            Failure::Absent => Failure::NoBucket(self.bucket.clone()),
            failure => failure,
        })
    }
}

/// The path of a key or of a prefix.
fn path(key: &str) -> Result<Path, Failure> {
    Path::parse(key).map_err(|error| Failure::Other(error.to_string()))
}

fn prefix(key: &str) -> Result<Option<Path>, Failure> {
    match key {
        "" => Ok(None),
        key => path(key).map(Some),
    }
}

impl<S: ObjectStore + MultipartStore> Objects for Cloud<S> {
    fn put(&self, key: &str, content: &Bytes, put: Put<'_>) -> Result<(), Failure> {
        let (path, content) = (path(key)?, content.clone());
        let is_update = matches!(put, Put::Matching(_));
        let mode = match put {
            Put::New => PutMode::Create,
            Put::Replace => PutMode::Overwrite,
            Put::Matching(tag) => {
                let tag = Some(tag.to_owned());
                PutMode::Update(UpdateVersion { e_tag: tag.clone(), version: tag })
            }
        };
        let done = self.call(|store| async move {
            store.put_opts(&path, content.into(), mode.into()).await.map(drop)
        });
        if is_update { done } else { self.in_bucket(done) }
    }

    fn get(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        tag: Option<&str>,
    ) -> Result<Bytes, Failure> {
        let (path, range) = (path(key)?, range.map(GetRange::Bounded));
        let if_match = tag.map(str::to_owned);
        let options = GetOptions { range, if_match, ..GetOptions::default() };
        self.call(|store| async move { store.get_opts(&path, options).await?.bytes().await })
    }

    fn get_tagged(&self, key: &str) -> Result<(Bytes, Option<String>), Failure> {
        let (path, kind) = (path(key)?, self.kind);
        self.call(|store| async move {
            let found = store.get(&path).await?;
            // Google compares generations.
            let tag = match kind {
                Kind::S3 | Kind::Azure => found.meta.e_tag.clone(),
                Kind::Google => found.meta.version.clone(),
            };
            Ok((found.bytes().await?, tag))
        })
    }

    fn stat(&self, key: &str) -> Result<Stat, Failure> {
        let path = path(key)?;
        let found = self.call(|store| async move { store.head(&path).await })?;
        let modified = found.last_modified.timestamp_nanos_opt();
        let modified = modified.and_then(|since| u64::try_from(since).ok()).unwrap_or_default();
        Ok(Stat { size: found.size, modified, tag: found.e_tag })
    }

    fn list(&self, key: &str) -> Result<Listed, Failure> {
        let path = prefix(key)?;
        let found =
            self.call(|store| async move { store.list_with_delimiter(path.as_ref()).await });
        let found = self.in_bucket(found)?;
        let rest = |path: &Path| Some(path.as_ref().strip_prefix(key)?.to_owned());
        let names = found.objects.iter().filter_map(|found| rest(&found.location));
        let directories = found.common_prefixes.iter().filter_map(rest);
        Ok(Listed { names: names.collect(), directories: directories.collect() })
    }

    fn list_all(&self, key: &str) -> Result<Vec<String>, Failure> {
        let path = prefix(key)?;
        let found = self.call(|store| async move {
            let keys = store.list(path.as_ref()).map_ok(|found| found.location.to_string());
            keys.boxed().try_collect().await
        });
        self.in_bucket(found)
    }

    fn remove(&self, key: &str) -> Result<(), Failure> {
        let path = path(key)?;
        match self.call(|store| async move { store.delete(&path).await }) {
            Err(Failure::Absent) => Ok(()),
            done => done,
        }
    }

    fn begin_parts(&self, key: &str) -> Result<String, Failure> {
        let path = path(key)?;
        self.in_bucket(self.call(|store| async move { store.create_multipart(&path).await }))
    }

    fn put_part(
        &self,
        key: &str,
        upload: &str,
        part: usize,
        content: &Bytes,
    ) -> Result<String, Failure> {
        let (path, upload, content) = (path(key)?, upload.to_owned(), content.clone());
        self.call(|store| async move {
            store.put_part(&path, &upload, part, content.into()).await.map(|part| part.content_id)
        })
    }

    fn finish_parts(&self, key: &str, upload: &str, parts: &[String]) -> Result<(), Failure> {
        let (path, upload) = (path(key)?, upload.to_owned());
        let parts = parts.iter().map(|part| PartId { content_id: part.clone() }).collect();
        self.call(
            |store| async move { store.complete_multipart(&path, &upload, parts).await.map(drop) },
        )
    }

    fn abort_parts(&self, key: &str, upload: &str) -> Result<(), Failure> {
        let (path, upload) = (path(key)?, upload.to_owned());
        self.call(|store| async move { store.abort_multipart(&path, &upload).await })
    }
}

impl<S> fmt::Debug for Cloud<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cloud").field(&self.bucket).finish()
    }
}
