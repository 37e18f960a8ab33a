//! The last good lists of a location, compressed in memory. While the files of the location are
//! faulty, a table can still be built from these lists, new overrides and new feeds.
//! `keep_lists` reads them.

use std::fmt;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::embedded_lists::ListsInCompiledTable;
use super::fault::{TableFault, TableFaults};
use super::location::{SourceFiles, TableLocation};

/// The last good lists of a location.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptLists {
    location: TableLocation,
    /// The name of each file and its compressed text. The lists inside the binary need none.
    files: Vec<(String, Vec<u8>)>,
    /// When a compiled file was compiled, in seconds since 1970; `None` for any other location.
    pub(super) compiled_at: Option<i64>,
}

impl KeptLists {
    /// The lists of a location, without a file yet.
    pub(super) fn new(location: TableLocation, compiled_at: Option<i64>) -> KeptLists {
        KeptLists { location, files: Vec::new(), compiled_at }
    }

    /// Compresses the text of a file, and adds it.
    pub(super) fn add(&mut self, file: String, text: &str) -> Result<(), TableFault> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        let compressed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
        let mut compressed =
            compressed.map_err(|source| TableFault::Io { at: file.clone(), source })?;
        compressed.shrink_to_fit();
        self.files.push((file, compressed));
        Ok(())
    }

    /// Whether these are the lists inside the binary, which are never faulty.
    pub fn are_bundled(&self) -> bool {
        self.location == TableLocation::Bundled
    }

    /// The lists as the files of a table.
    pub(super) fn to_source_files(&self) -> Result<SourceFiles<'_>, TableFaults> {
        let TableLocation::Path(path) = &self.location else { return Ok(SourceFiles::Bundled) };
        let mut lists = ListsInCompiledTable::new();
        for (file, compressed) in &self.files {
            let mut text = String::new();
            DeflateDecoder::new(&compressed[..])
                .read_to_string(&mut text)
                .map_err(|source| TableFault::Io { at: file.clone(), source })?;
            lists.push((file.clone(), text.into()));
        }
        Ok(SourceFiles::Compiled(path, lists))
    }

    /// The memory that the lists take, in bytes.
    #[cfg(test)]
    pub(super) fn byte_count(&self) -> usize {
        self.files.iter().map(|(_, compressed)| compressed.len()).sum()
    }
}

impl fmt::Debug for KeptLists {
    /// Omits the lists.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptLists").field("location", &self.location).finish_non_exhaustive()
    }
}
