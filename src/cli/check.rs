//! `riskgate check`: reads everything as `run` would, and starts nothing.

use super::output::tell;
use super::{ConfigArgs, Failure, unix_now};
use crate::keys::KeyRing;
use crate::server::{Loaded, check_start};
use crate::store::{RingRows, StoreUrl};

pub fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let loaded = Loaded::read(&args.overrides()).map_err(Failure::config)?;
    let faults = check_start(&loaded.config);
    if !faults.is_empty() {
        return Err(Failure::config(faults.iter().map(ToString::to_string).collect()));
    }
    // A check leaves nothing behind: a file that is not there yet would be made by `run`.
    let rows = match &loaded.config.store.url {
        StoreUrl::Sqlite(path) if !path.exists() => RingRows::default(),
        _ => {
            let mut store = loaded.config.store.open(super::PATIENCE)?;
            store.check()?;
            // A server that does not answer is a fault here, though `run` would wait for it.
            super::rows_of(&mut store)?
        }
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
