//! `riskgate check`: reads everything as `run` would, and starts nothing.

use super::config_args::ConfigArgs;
use super::failure::Failure;
use super::output::tell;
use super::store_access::{PATIENCE, rows_of};
use crate::keys::KeyRing;
use crate::process::server::{Loaded, prepare};
use crate::quota::unix_now;
use crate::store::{RingRows, Store, StoreError};

pub fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let loaded = Loaded::read(&args.overrides()).map_err(Failure::config)?;
    prepare(&loaded.config)?;
    let options = &loaded.config.store;
    // A check leaves nothing behind: a file that is not there yet would be made by `run`.
    let rows = match Store::open_to_check(&options.url, &options.redis, PATIENCE) {
        Ok(None) => RingRows::default(),
        Ok(Some(mut store)) => {
            store.check().map_err(unusable)?;
            rows_of(&mut store).map_err(unusable)?
        }
        Err(error) => return Err(unusable(error)),
    };
    let (declared, plans) = (&loaded.declared, &loaded.config.plans);
    KeyRing::check_file(&rows, declared, plans)
        .map_err(|error| Failure::config(vec![error.to_string()]))?;
    let from = loaded
        .config
        .file
        .as_ref()
        .map_or("built-in defaults".to_owned(), |file| file.display().to_string());
    tell(format!(
        "{from}: good; table {} with {} rows, {} keys",
        loaded.table.version(),
        loaded.table.rows(),
        rows.keys.len() + loaded.declared.len(),
    ));
    // What is wrong with one key or account stops no start.
    for fault in KeyRing::faults_of(&rows, declared, plans) {
        tell(format!("warning: {fault}; its calls are answered with 500"));
    }
    for warning in loaded.table.warnings(unix_now()) {
        tell(format!("warning: {warning}"));
    }
    Ok(())
}

/// A store without which `run` does not start. A server that does not answer is a fault here,
/// though `run` would wait for it.
fn unusable(error: StoreError) -> Failure {
    match error {
        StoreError::Unanswered { .. } => error.into(),
        _ => Failure::config(vec![error.to_string()]),
    }
}
