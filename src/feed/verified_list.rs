//! What a process remembers of a feed's list on disk: which file has the right checksum.

use std::sync::{Arc, Mutex};

use crate::support::lock::lock;

/// Length, inode and change time of the file of a list.
pub(super) type ListFingerprint = [i64; 4];

/// The fingerprint of the file whose checksum this process has verified, so that an examination of
/// the list need not compute the checksum again while the file is unchanged. If a file was copied,
/// its fingerprint differs from the one that the feed's state records.
///
/// All values are equal: they belong to a config, and configs are compared by their settings.
#[derive(Clone, Debug, Default)]
pub struct VerifiedList(Arc<Mutex<Option<ListFingerprint>>>);

impl VerifiedList {
    /// The fingerprint of the last verified file; `None` if no file was verified.
    pub(super) fn fingerprint(&self) -> Option<ListFingerprint> {
        *lock(&self.0)
    }

    /// Remembers the file with this fingerprint.
    pub(super) fn remember(&self, fingerprint: Option<ListFingerprint>) {
        *lock(&self.0) = fingerprint;
    }
}

impl PartialEq for VerifiedList {
    fn eq(&self, _: &VerifiedList) -> bool {
        true
    }
}

impl Eq for VerifiedList {}
