//! What a caller was let in by, for as long as it counts.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustls::pki_types::{CertificateDer, UnixTime};
use tokio::{sync::watch, time::sleep};

use super::{Callers, Files, certificate};
use crate::live::Live;

/// Clocks are not exact: when a certificate has just expired, it is looked at again
/// after so long.
const AGAIN: Duration = Duration::from_secs(1);

/// The certificate that a caller has shown.
pub(crate) struct Vouched {
    files: Arc<Live<Files>>,
    chain: Vec<CertificateDer<'static>>,
    /// When the first of them expires.
    expires: SystemTime,
    /// By which authorities it was found good.
    authorities: [u8; 32],
    changes: watch::Receiver<()>,
}

impl Vouched {
    /// A chain that has just been found good with `callers`.
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

    /// Returns once nobody vouches for the caller any more: the certificate has expired,
    /// or no authority in force issued it.
    pub(crate) async fn over(mut self) {
        while self.holds() {
            let left = self.expires.duration_since(SystemTime::now()).unwrap_or_default();
            tokio::select! {
                () = sleep(left.max(AGAIN)) => {}
                // The files are never let go of here, so changes never end.
                _ = self.changes.changed() => {}
            }
        }
    }

    fn holds(&mut self) -> bool {
        let terms = self.files.load();
        let Some(callers) = &terms.callers else { return false };
        // Most changes are of our own certificate: callers need not be looked at then.
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
