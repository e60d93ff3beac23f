//! Calls of other protocols over HTTP, with the connections, headers, tokens and limits of the hosts.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header::CONTENT_TYPE};
use tokio::time::{Instant, timeout_at};

use crate::{Client, Failure, Ledger, rest::Read};

/// An answer with a status of success.
#[derive(Debug, Clone)]
pub struct Answered {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, decompressed.
    pub body: Bytes,
}

impl Client {
    /// Sends a body of JSON to a path at the host numbered `host`, once. The call counts neither for
    /// the withdrawal nor for the limit of the host. The answer is charged to `ledger`.
    ///
    /// # Errors
    /// No answer came by the deadline, it has another status than success, or it is larger than the
    /// client's limit.
    pub async fn post_at(
        &self,
        host: usize,
        (path, body): (&str, Bytes),
        (deadline, ledger): (Instant, &dyn Ledger),
    ) -> Result<Answered, Failure> {
        self.plain(host, (Method::POST, path, body), (deadline, Some(ledger))).await
    }

    /// Gets a path at the host numbered `host`, once.
    ///
    /// # Errors
    /// As [`post_at`](Self::post_at).
    pub async fn get_at(
        &self,
        host: usize,
        path: &str,
        deadline: Instant,
    ) -> Result<Answered, Failure> {
        self.plain(host, (Method::GET, path, Bytes::new()), (deadline, None)).await
    }

    async fn plain(
        &self,
        host: usize,
        (method, path, body): (Method, &str, Bytes),
        (deadline, ledger): (Instant, Option<&dyn Ledger>),
    ) -> Result<Answered, Failure> {
        let until = self.until(deadline);
        let host = self.host(host);
        let call = async {
            let mut headers = host.headers(&HeaderMap::new()).await?;
            if method == Method::POST {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
            host.rest().call((method, path), headers, body, ledger).await
        };
        let answer = timeout_at(until, call).await.unwrap_or_else(|_| Err(Failure::timeout()));
        let Read { status, headers, body } = answer.map_err(|failure| failure.at(&host.name))?;
        Ok(Answered { status, headers, body })
    }
}
