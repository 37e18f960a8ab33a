//! Reads the lists of a location, to keep them in memory.

use super::aligned_bytes;
use super::build;
use super::embedded_lists;
use super::fault::{TableFault, TableFaults};
use super::kept_lists::KeptLists;
use super::location::{SourceFiles, TableLocation};
use super::table_data::Table;
use crate::support::memory;

impl KeptLists {
    /// Reads the lists of a location, and compresses them.
    ///
    /// # Errors
    /// If a file can't be read, if the manifest is faulty, or if too little memory is free.
    pub fn read_and_compress(location: &TableLocation) -> Result<KeptLists, TableFaults> {
        let keep = |compiled_at| KeptLists::new(location.clone(), compiled_at);
        match location {
            TableLocation::Bundled => Ok(keep(None)),
            TableLocation::Path(path) if path.is_dir() => {
                add_files(keep(None), &SourceFiles::Directory(path))
            }
            TableLocation::Path(path) => {
                let name = path.display().to_string();
                // The file, and the texts that it carries.
                let needed = 2 * std::fs::metadata(path).map_or(0, |metadata| metadata.len());
                memory::check_available(needed)
                    .map_err(|source| TableFault::Io { at: name.clone(), source })?;
                let table = Table::from_bytes(aligned_bytes::read_compiled_table(path)?, &name)?;
                let lists = embedded_lists::decode_lists(&table.bytes, &name)?;
                let kept = keep(Some(table.built_at()));
                drop(table);
                add_files(kept, &SourceFiles::Compiled(path, lists))
            }
        }
    }
}

/// Adds the manifest, the sources and each list.
fn add_files(mut kept: KeptLists, source_files: &SourceFiles) -> Result<KeptLists, TableFaults> {
    let lists = build::read_manifest_and_sources(source_files)?.manifest.list_specs;
    let head = ["manifest.toml", "sources.toml"].map(str::to_owned);
    for file in head.into_iter().chain(lists.into_iter().map(|list| list.file)) {
        if let Some(text) = source_files.read_text(&file)? {
            kept.add(file, &text)?;
        }
    }
    Ok(kept)
}
