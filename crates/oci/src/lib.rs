//! References, credentials, pull and push of OCI images.
