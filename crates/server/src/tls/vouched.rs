//! The validity of a client certificate during its connection.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustls::pki_types::{CertificateDer, UnixTime};
use tokio::{sync::watch, time::sleep};

use super::{Callers, Files, certificate};
use crate::live::Live;

/// The shortest wait before a certificate is checked again: clocks are not exact, so one that has
/// just expired may still verify.
const AGAIN: Duration = Duration::from_secs(1);

/// The certificate chain that a caller has presented.
pub(crate) struct Vouched {
    files: Arc<Live<Files>>,
    chain: Vec<CertificateDer<'static>>,
    /// The earliest expiry in the chain.
    expires: SystemTime,
    /// A hash of the authorities that last verified it.
    authorities: [u8; 32],
    changes: watch::Receiver<()>,
}

impl Vouched {
    /// A chain that the authorities with this hash have just verified.
    pub(super) fn new(
        files: &Arc<Live<Files>>,
        chain: &[CertificateDer<'_>],
        authorities: [u8; 32],
    ) -> Self {
        let expire = chain.iter().filter_map(|each| certificate::expiry(each).ok()).min();
        let seconds = expire.and_then(|expire| u64::try_from(expire).ok()).unwrap_or_default();
        Self {
            files: Arc::clone(files),
            chain: chain.iter().map(|each| each.clone().into_owned()).collect(),
            expires: UNIX_EPOCH + Duration::from_secs(seconds),
            authorities,
            changes: files.changes(),
        }
    }

    /// Returns once the caller's certificate is no longer valid: it has expired, or no authority in
    /// force issued it.
    pub(crate) async fn over(mut self) {
        while self.holds() {
            let left = self.expires.duration_since(SystemTime::now()).unwrap_or_default();
            tokio::select! {
                () = sleep(left.max(AGAIN)) => {}
                // This value holds the files, so the channel never closes.
                _ = self.changes.changed() => {}
            }
        }
    }

    fn holds(&mut self) -> bool {
        let terms = self.files.load();
        let Some(callers) = &terms.callers else { return false };
        // Most changes concern the server's own certificate. Then the authorities are the same, and
        // the chain need not be verified again.
        let same = callers.authorities == self.authorities;
        let good = same && SystemTime::now() < self.expires || self.verifies(callers);
        self.authorities = callers.authorities;
        good
    }

    fn verifies(&self, callers: &Callers) -> bool {
        let Some((own, above)) = self.chain.split_first() else { return false };
        callers.verifier.verify_client_cert(own, above, UnixTime::now()).is_ok()
    }
}
